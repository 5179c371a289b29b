package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/host/diskroom"
)

const (
	// maxLine limits one line, and the size of one read.
	maxLine = 1 << 20
	// maxLines limits the number of lines that are processed in one batch.
	maxLines = 2000
	// freeFrom is the minimum amount of disk space that is released at once.
	freeFrom = 1 << 20
)

// file is the state of reading one file.
type file struct {
	form    Form
	path    string
	sandbox string
	source  string

	f     *os.File
	at    int64  // offset of the next unread line
	read  uint64 // number of the last line read by this process
	last  uint64 // number of the last line in the audit log
	known bool   // last is the value from the audit log
	bad   bool   // the last line read was invalid
	skip  bool   // at is within a line that is too long
	freed int64  // offset up to which disk space was released
}

// buffers are reused, because most files have little new data.
var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// room enlarges a buffer so that the unread data fits.
func (f *file) room(buf *[]byte) error {
	info, err := f.f.Stat()
	if err != nil {
		return err
	}
	if info.Size()-f.at > int64(len(*buf)) && len(*buf) < maxLine {
		*buf = make([]byte, maxLine)
	}
	return nil
}

// grown reports whether there may be unread data. A missing file has no lines.
func (f *file) grown() (bool, error) {
	if f.f == nil {
		file, err := os.OpenFile(f.path, f.mode()|unix.O_NOFOLLOW, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("event file %s: %w", f.source, err)
		}
		f.f = file
	}
	info, err := f.f.Stat()
	if err != nil {
		return false, fmt.Errorf("event file %s: %w", f.source, err)
	}
	return info.Size() > f.at, nil
}

// mode returns the flags with which to open the file. Releasing disk space needs write access.
func (f *file) mode() int {
	if f.form.Free != nil {
		return os.O_RDWR
	}
	return os.O_RDONLY
}

func (f *file) close() error {
	if f.f == nil {
		return nil
	}
	err := f.f.Close()
	*f = file{form: f.form, path: f.path, sandbox: f.sandbox, source: f.source}
	return err
}

// take ingests the lines up to the end of the file. last means that the file has no writer any
// more.
func (f *file) take(ctx context.Context, to audit.Recorder, hide Redact, last bool) error {
	if f.f == nil {
		return nil
	}
	if !f.known {
		position, err := to.Position(ctx, f.source)
		if err != nil {
			return err
		}
		f.last, f.known = max(f.last, position), true
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for more := true; more; {
		err := f.room(buf)
		if err == nil {
			more, err = f.batch(ctx, to, hide, *buf, last)
		}
		if err != nil {
			return fmt.Errorf("event file %s: %w", f.source, err)
		}
	}
	return nil
}

// batch processes the next lines and reports whether there may be more.
func (f *file) batch(ctx context.Context, to audit.Recorder, hide Redact, buf []byte, last bool) (bool, error) {
	// Released space is a hole in the file.
	begin, err := unix.Seek(int(f.f.Fd()), f.at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	n, err := f.f.ReadAt(buf, begin)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	b := batch{file: *f, origin: f, hide: hide}
	b.at = begin
	used := b.lines(buf[:n])
	more := n == len(buf) || used < n && len(b.drafts) >= maxLines
	if last && !more {
		rest := bytes.TrimLeft(buf[used:n], "\x00")
		b.bad = b.bad || len(rest) > 0
		b.cut()
		used = n
	}
	if err := b.write(ctx, to); err != nil {
		return false, err
	}
	b.at += int64(used)
	*f = b.file
	return more, f.free(b.anchor)
}

// free releases the disk space before the last line that became an entry. That line remains, so
// that the numbers of later lines reveal a loss.
func (f *file) free(anchor int64) error {
	if f.form.Free == nil || anchor-f.freed < freeFrom {
		return nil
	}
	if err := f.form.Free(f.f, anchor); err != nil {
		return err
	}
	f.freed = anchor
	info, err := f.f.Stat()
	if err != nil {
		return fmt.Errorf("event file %s: %w", f.source, err)
	}
	return diskroom.Preallocate(f.f, info.Size(), aheadBytes)
}
