package flows

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress"
)

// maxLine limits one line. The limits of a flow's fields are far smaller.
const maxLine = 1 << 20

// Filter selects flows.
type Filter struct {
	Denied bool   // only denials
	After  uint64 // only with a greater Seq
	From   int64  // only flows that begin at or after this offset
	Newest bool   // only the last flow
}

// wants reports whether a flow matches, apart from From and Newest.
func (f Filter) wants(r egress.Record) bool {
	return r.Seq > f.After && (!f.Denied || r.Effect == egress.Deny)
}

// Read calls yield for each matching flow, in order, until yield returns an error, which Read
// returns. With follow it continues with new flows as they are written, until ctx ends. A sandbox
// without a file has no flows.
func (d *Dir) Read(ctx context.Context, sandbox string, filter Filter, follow bool, yield func(egress.Record) error) error {
	path, err := d.file(sandbox)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("network flows: %w", err)
	}
	defer f.Close()
	// Start watching before the first read, so that no change is missed.
	var changes *watch
	if follow {
		if changes, err = newWatch(path); err != nil {
			return err
		}
		defer changes.close()
	}
	lines, err := filter.lines(f)
	if err != nil {
		return fmt.Errorf("network flows of %s: %w", sandbox, err)
	}
	for {
		for {
			line, err := lines.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("network flows of %s: %w", sandbox, err)
			}
			var r egress.Record
			if err := json.Unmarshal(line, &r); err != nil {
				return fmt.Errorf("network flows of %s: %w", sandbox, err)
			}
			if filter.wants(r) {
				if err := yield(r); err != nil {
					return err
				}
			}
		}
		if changes == nil {
			return nil
		}
		if gone, err := changes.wait(ctx); err != nil || gone {
			return err
		}
	}
}

// Size returns the current size of a sandbox's flows in bytes, or 0 without a file.
func (d *Dir) Size(sandbox string) int64 {
	path, err := d.file(sandbox)
	if err != nil {
		return 0
	}
	info, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// tail reads the complete lines of a growing file. It leaves an incomplete last line for the next
// read.
type tail struct {
	in      *bufio.Reader
	partial []byte
}

// next returns the next complete line, or io.EOF if there is none yet.
func (t *tail) next() ([]byte, error) {
	for {
		part, err := t.in.ReadSlice('\n')
		t.partial = append(t.partial, part...)
		if len(t.partial) > maxLine {
			return nil, errors.New("a line is too long")
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return nil, err
		}
		line := t.partial
		t.partial = nil
		return line, nil
	}
}

// watch reports when a file grew or was removed.
type watch struct{ f *os.File }

func newWatch(path string) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch network flows: %w", err)
	}
	// IN_ATTRIB reports the removal of a file that is still open.
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MODIFY|unix.IN_ATTRIB|unix.IN_DELETE_SELF); err != nil {
		return nil, errors.Join(fmt.Errorf("watch network flows: %w", err), unix.Close(fd))
	}
	return &watch{os.NewFile(uintptr(fd), "inotify")}, nil
}

func (w *watch) close() { _ = w.f.Close() }

// wait returns after a change. It returns true if the file was removed.
func (w *watch) wait(ctx context.Context) (gone bool, err error) {
	stop := context.AfterFunc(ctx, w.close)
	defer stop()
	buf := make([]byte, 4096)
	n, err := w.f.Read(buf)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		return false, fmt.Errorf("watch network flows: %w", err)
	}
	for at := 0; at+unix.SizeofInotifyEvent <= n; {
		mask := uint32(buf[at+4]) | uint32(buf[at+5])<<8 | uint32(buf[at+6])<<16 | uint32(buf[at+7])<<24
		if mask&(unix.IN_ATTRIB|unix.IN_DELETE_SELF|unix.IN_IGNORED) != 0 {
			gone = true
		}
		name := uint32(buf[at+12]) | uint32(buf[at+13])<<8 | uint32(buf[at+14])<<16 | uint32(buf[at+15])<<24
		at += unix.SizeofInotifyEvent + int(name)
	}
	return gone, nil
}
