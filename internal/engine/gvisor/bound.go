package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
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
	if b, err := e.find(id); err == nil && b.rec.Spec != nil && packedRoot(*b.rec.Spec) != "" {
		// All files are in the packed root, which never changes.
		return list, true, e.Checkpoint(ctx, id, dir)
	}
	var listing chan struct{} // closed at the end of listing, nil if that has not begun
	var listErr error         // why the list is not known
	certain, err := e.checkpoint(ctx, id, dir, func(b *instance) {
		open, err := hostfiles.OpenBy(b.rec.Sentry.PID, rootName)
		listing = make(chan struct{})
		// The kernel may have to wait until its open files are known. They are compared with the
		// host's while it writes the state.
		go func() {
			defer close(listing)
			if listErr = err; err == nil {
				list, listErr = boundTo(b.rec, open)
			}
		}()
	})
	if listing != nil {
		<-listing
	}
	if err != nil {
		list.Open.Close()
		return engine.Bound{}, false, err
	}
	if listErr == nil && !certain {
		listErr = errors.New("the state was written before the open files were listed")
	}
	if listErr != nil {
		list.Open.Close()
		e.log.Warn("cannot determine which files of the host a state refers to", "sandbox", id, "err", listErr)
		return engine.Bound{}, false, nil
	}
	return list, true, nil
}

// boundTo returns the open files of a sandbox that are the host's, and closes the others; after an
// error, all of them.
func boundTo(rec record, open hostfiles.List) (list engine.Bound, err error) {
	defer func() {
		if err != nil {
			open.Close()
			list = engine.Bound{}
		}
	}()
	if rec.Spec == nil {
		return list, errors.New("the record of the sandbox was written by an earlier version")
	}
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

// listingPipe is how many bytes the kernel can write while the open files are listed, which is about
// what it writes in that time. A state must be larger to be certainly incomplete when the list is.
const listingPipe = 128 << 10

// largePipe holds the rest of most states, so that the kernel does not wait for the copying.
const largePipe = 1 << 20

// copyWithPause copies a saved state from a pipe into a file, and calls look once listAfter bytes
// have arrived. While look runs, the kernel can write only as much as the pipe holds. Then it
// waits, and its programs wait for the kernel. If this process ends, the checkpoint fails and the
// programs continue.
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
	if _, err := unix.FcntlInt(end.Fd(), unix.F_SETPIPE_SZ, listAfter); err != nil {
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
		certain, err := copyAndLook(to, from, look)
		done <- outcome{certain, err}
	}()
	return end, func(saveErr error) (bool, error) {
		if saveErr != nil {
			from.Close() // a hanging kernel may keep its end open
		}
		o := <-done
		return o.certain, o.err
	}, nil
}

// copyAndLook copies a state, and calls look after the first listAfter bytes. It reports whether
// the kernel wrote any of the rest after look had returned.
func copyAndLook(to io.Writer, from *os.File, look func()) (bool, error) {
	head := make([]byte, listAfter)
	n, err := io.ReadFull(from, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	written := math.MaxInt // how many bytes of the rest were written while look ran
	if n == listAfter {
		// A failure only makes the checkpoint slower.
		_ = setPipeSize(from, listingPipe)
		look()
		if written, err = unreadBytes(from); err != nil {
			return false, err
		}
		_ = setPipeSize(from, largePipe)
	}
	if _, err := to.Write(head[:n]); err != nil {
		return false, err
	}
	rest, err := io.Copy(to, from)
	return rest > int64(written), err
}

// setPipeSize changes how many bytes a pipe can hold.
func setPipeSize(pipe *os.File, size int) (err error) {
	return withDescriptor(pipe, func(fd uintptr) error {
		_, err := unix.FcntlInt(fd, unix.F_SETPIPE_SZ, size)
		return err
	})
}

// unreadBytes returns how many bytes a pipe holds.
func unreadBytes(pipe *os.File) (n int, err error) {
	err = withDescriptor(pipe, func(fd uintptr) (err error) {
		n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) // FIONREAD of pipes
		return err
	})
	return n, err
}

// withDescriptor calls do with the descriptor of a file, which stays in Go's poller.
func withDescriptor(f *os.File, do func(fd uintptr) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if controlErr := conn.Control(func(fd uintptr) { err = do(fd) }); controlErr != nil {
		return controlErr
	}
	return err
}
