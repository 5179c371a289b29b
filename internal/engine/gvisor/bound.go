package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/state/hostfiles"
)

// rootName is the path of the sandbox's root in the mounts of its kernel process, which has the
// files of the sandbox open.
const rootName = "/root"

// CheckpointBound implements engine.Binder. When gVisor restores a state, it opens files again by
// path and does not compare them. With different files, the memory of programs would not match the
// code that they map.
func (e *Engine) CheckpointBound(ctx context.Context, id, dir string) (list engine.Bound, known bool, err error) {
	var open hostfiles.List
	var rec record
	var listErr error // why the list is not known
	certain, err := e.checkpoint(ctx, id, dir, func(b *instance) {
		rec = b.rec
		open, listErr = hostfiles.OpenBy(b.rec.Sentry.PID, rootName)
	})
	if err != nil {
		open.Close()
		return engine.Bound{}, false, err
	}
	if listErr == nil && !certain {
		listErr = errors.New("the state was written before the open files were listed")
	}
	if listErr == nil && rec.Spec == nil {
		listErr = errors.New("the record of the sandbox was written by an earlier version")
	}
	if listErr == nil {
		list, listErr = boundTo(rec, open)
	}
	if listErr != nil {
		open.Close()
		e.log.Warn("cannot determine which files of the host a state refers to", "sandbox", id, "err", listErr)
		return engine.Bound{}, false, nil
	}
	return list, true, nil
}

// boundTo returns the open files of a sandbox that are the host's, and closes the others.
func boundTo(rec record, open hostfiles.List) (list engine.Bound, err error) {
	slices.SortFunc(open, func(a, b hostfiles.Open) int { return strings.Compare(a.Path, b.Path) })
	var others hostfiles.List
	guestFound := false
	for _, o := range open {
		inside := path.Clean("/" + strings.TrimPrefix(o.Path, rootName))
		guestFound = guestFound || inside == rec.Spec.Image.Guest
		source, top := hostPath(rec.Spec, inside)
		if source == "" {
			others = append(others, o)
			continue
		}
		moved := false
		if !isStandIn(rec.Spec, inside) {
			if moved, err = o.MovedSince(rec.Created, source, top); err != nil {
				return list, fmt.Errorf("%s: %w", source, err)
			}
		}
		if moved {
			// The host's kernel reports the present path. gVisor will open the original path, at
			// which another file may be now.
			return list, fmt.Errorf("%s may have been moved while the sandbox ran", source)
		}
		f, err := o.At(source)
		if err != nil {
			return list, fmt.Errorf("%s: %w", source, err)
		}
		f.Inside = inside
		list.Files, list.Open = append(list.Files, f), append(list.Open, o)
	}
	if !guestFound {
		// The guest runs, so its program must be open. If it is missing, the list is incomplete.
		return list, errors.New("the program of the guest is not among the open files")
	}
	others.Close()
	return list, nil
}

// hostPath returns the host's path of a file in the sandbox, and the source of the bind that
// contains the file. It returns "" unless the path is below one of the root's binds and no other
// file is mounted there. Files of the workspace and of mounts may change at any time, so they are
// not listed.
func hostPath(spec *engine.Spec, inside string) (source, top string) {
	found := ""
	for _, b := range spec.Image.View().Binds {
		// A later bind covers earlier ones.
		if hostfiles.Below(inside, b.Target) {
			found, top = b.Target, b.Source
		}
	}
	if found == "" {
		return "", ""
	}
	for _, covered := range [][]string{spec.Hide, spec.Absent} {
		if slices.ContainsFunc(covered, func(c string) bool { return hostfiles.Below(inside, c) }) {
			return "", ""
		}
	}
	return path.Join(top, strings.TrimPrefix(inside, found)), top
}

// listAfter is how many bytes of a state must have been written before the open files are listed.
// When gVisor writes more than a header of a few hundred bytes, it has closed all files that the
// state does not refer to.
const listAfter = 16 << 10

// largePipe holds the rest of most states, so that the kernel does not wait for the copying.
const largePipe = 1 << 20

// copyWithPause copies a saved state from a pipe into a file, and calls look once listAfter bytes
// have arrived. If the kernel has more to write than the pipe can hold, it waits while look runs,
// and its programs wait for the kernel. If this process ends, the checkpoint fails and the programs
// continue.
//
// The caller passes the end of the pipe to the kernel, closes its own copy, and calls written with
// the result of the checkpoint. If that was successful, written waits until the state is complete.
// It reports whether the kernel was certainly still writing when look returned.
func copyWithPause(to io.Writer, look func()) (end *os.File, written func(error) (bool, error), err error) {
	from, end, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	// The pipe should hold little. A smaller one makes both sides wait for each other before look can
	// be called. Fd also makes it blocking.
	size, err := unix.FcntlInt(end.Fd(), unix.F_SETPIPE_SZ, listAfter)
	if err != nil {
		from.Close()
		end.Close()
		return nil, nil, err
	}
	type outcome struct {
		certain bool
		err     error
	}
	done := make(chan outcome, 1)
	go func() {
		defer from.Close() // after an error, this ends the checkpoint
		remaining, err := copyAndLook(to, from, look)
		done <- outcome{remaining > int64(size), err}
	}()
	return end, func(saveErr error) (bool, error) {
		if saveErr != nil {
			from.Close() // a hanging kernel may keep its end open
		}
		o := <-done
		return o.certain, o.err
	}, nil
}

// copyAndLook copies a state, calls look after the first listAfter bytes, and returns how many
// bytes followed.
func copyAndLook(to io.Writer, from *os.File, look func()) (int64, error) {
	head := make([]byte, listAfter)
	n, err := io.ReadFull(from, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, err
	}
	if n == listAfter {
		look()
	}
	// An error is ignored: the small pipe only makes the checkpoint slower.
	if conn, err := from.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, largePipe) })
	}
	if _, err := to.Write(head[:n]); err != nil {
		return 0, err
	}
	return io.Copy(to, from)
}
