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

// rootName is where the root of a sandbox is in the mounts of its kernel process, which has the
// files of the sandbox open.
const rootName = "/root"

// CheckpointBound implements engine.Binder. When gVisor restores a state, it opens files again by
// path and does not compare them. With different files, the memory of programs would not match the
// code that they map.
func (e *Engine) CheckpointBound(ctx context.Context, id, dir string) (list engine.Bound, bound bool, err error) {
	var open hostfiles.List
	var rec record
	var lost error
	sure, err := e.checkpoint(ctx, id, dir, func(b *instance) {
		rec = b.rec
		open, lost = hostfiles.OpenBy(b.rec.Sentry.PID, rootName)
	})
	if err != nil {
		open.Close()
		return engine.Bound{}, false, err
	}
	if lost == nil && !sure {
		lost = errors.New("its state was written before its open files were listed")
	}
	if lost == nil && rec.Spec == nil {
		lost = errors.New("its record was written by an earlier version")
	}
	if lost == nil {
		list, lost = boundTo(rec, open)
	}
	if lost != nil {
		open.Close()
		e.log.Warn("cannot find out which files of the host a state refers to", "sandbox", id, "err", lost)
		return engine.Bound{}, false, nil
	}
	return list, true, nil
}

// boundTo returns the open files of a sandbox that are the host's, and closes the others.
func boundTo(rec record, open hostfiles.List) (list engine.Bound, err error) {
	slices.SortFunc(open, func(a, b hostfiles.Open) int { return strings.Compare(a.Path, b.Path) })
	var others hostfiles.List
	guest := false
	for _, o := range open {
		inside := path.Clean("/" + strings.TrimPrefix(o.Path, rootName))
		guest = guest || inside == rec.Spec.Image.Guest
		place, top := hostPath(rec.Spec, inside)
		if place == "" {
			others = append(others, o)
			continue
		}
		moved := false
		if !stands(rec.Spec, inside) {
			if moved, err = o.MovedSince(rec.Created, place, top); err != nil {
				return list, fmt.Errorf("%s: %w", place, err)
			}
		}
		if moved {
			// The file is listed by its present path. gVisor will open the original path, where
			// another file may be now.
			return list, fmt.Errorf("%s may have been moved while the sandbox ran", place)
		}
		f, err := o.At(place)
		if err != nil {
			return list, fmt.Errorf("%s: %w", place, err)
		}
		f.Inside = inside
		list.Files, list.Open = append(list.Files, f), append(list.Open, o)
	}
	if !guest {
		// The guest runs, so its program must be open. If it is missing, the list is incomplete.
		return list, errors.New("the program of the guest is not among the open files")
	}
	others.Close()
	return list, nil
}

// hostPath returns where a sandbox's path is on the host, and the start of the bind that contains
// it. It returns "" unless the path is below one of the root's binds and nothing else is mounted
// there. Files of the workspace and of mounts may change at any time, and no state is bound to
// them.
func hostPath(spec *engine.Spec, inside string) (place, top string) {
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

// enough is how much of a state has to be written before gVisor has closed all files that the state
// does not refer to. Only a head of a few hundred bytes is written before.
const enough = 16 << 10

// halfway copies a saved state from a pipe into a file, and calls look once enough of it has
// arrived. If the kernel has more to write than the pipe can hold, it waits while look runs, and
// its programs wait for the kernel. If this process ends, the save fails and the programs continue.
//
// The caller passes the end of the pipe on, closes it, and calls written with the result of the
// save. written waits for the rest of a successful save. It reports whether the kernel was still
// writing when look returned.
func halfway(to io.Writer, look func()) (end *os.File, written func(error) (bool, error), err error) {
	from, end, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	// The pipe should hold as little as possible. Fd also makes it blocking.
	size, err := unix.FcntlInt(end.Fd(), unix.F_SETPIPE_SZ, os.Getpagesize())
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
		defer from.Close() // after an error, this ends the save
		rest, err := copyHalfway(to, from, look)
		done <- outcome{rest > int64(size), err}
	}()
	return end, func(failed error) (bool, error) {
		if failed != nil {
			from.Close() // a hanging kernel may keep its end open
		}
		o := <-done
		return o.certain, o.err
	}, nil
}

// copyHalfway returns how many bytes followed after look.
func copyHalfway(to io.Writer, from *os.File, look func()) (int64, error) {
	begin := make([]byte, enough)
	n, err := io.ReadFull(from, begin)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, err
	}
	if n == enough {
		look()
	}
	if _, err := to.Write(begin[:n]); err != nil {
		return 0, err
	}
	// Best effort: with the small pipe the save takes longer.
	if conn, err := from.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 1<<20) })
	}
	return io.Copy(to, from)
}
