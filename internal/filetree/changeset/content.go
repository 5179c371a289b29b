package changeset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Base is the tree to which the files of a sandbox are compared.
type Base struct {
	// Start is the tree at the start of the sandbox.
	Start []Entry
	// Brought are the entries of files of Outside after an earlier Apply. They replace the entries
	// of Start. An entry without a type was removed.
	Brought []Entry
	// Content has the files of Start, if they are not those of Outside. If it is nil, the content
	// of files that still match Start is read from Outside.
	Content *os.Root
	// Outside is the directory that changes are applied to, or nil.
	Outside *os.Root
}

var (
	errMoved   = errors.New("the file was replaced after it was listed")
	errUnknown = errors.New("the file's earlier content is unknown")
)

// hostFiles reads files of a directory of the host.
type hostFiles struct{ dir *os.File }

// open opens a file. The file must not have changed since it was listed.
func (h hostFiles) open(e *Entry) (*os.File, error) {
	f, err := beneath(h.dir, e.Path, unix.O_RDONLY)
	if err != nil {
		if isMissing(err) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
			return nil, errMoved
		}
		return nil, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		f.Close()
		return nil, err
	}
	current := FromStat(&stat)
	if current.Type != Regular || !stillIs(e, &current) {
		f.Close()
		return nil, errMoved
	}
	return f, nil
}

// openOriginal opens the original version of a file.
func (c *comparison) openOriginal(t *trio) (io.ReadCloser, error) {
	if t.start == nil || t.start.Type != Regular {
		return nil, errUnknown
	}
	if c.base.Content != nil && !t.brought {
		return c.base.Content.OpenFile(t.start.Path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	}
	if t.host == nil || c.dir == nil || !sameOutside(t.start, t.host) {
		return nil, errUnknown
	}
	return hostFiles{c.dir}.open(t.host)
}

// sumOf returns the checksum of a whole file.
func sumOf(ctx context.Context, r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, contextReader{ctx, r}); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// contextReader is a reader that fails once its context has ended.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (p contextReader) Read(b []byte) (int, error) {
	if err := context.Cause(p.ctx); err != nil {
		return 0, err
	}
	return p.r.Read(b)
}

// sameOutside reports whether a host file is the same as at the start of the sandbox. It ignores
// the change time, because a rename, a new owner or a new link changes that too, and so does the
// undo of a failed Apply.
func sameOutside(before, current *Entry) bool {
	return before.Type == current.Type && before.Mode == current.Mode && (before.Type != Link || before.Target == current.Target) &&
		(before.Type == Dir || before.Size == current.Size && before.Ino == current.Ino && before.MTime.Equal(current.MTime))
}

// stillIs reports whether a host file has not been touched since the comparison.
func stillIs(before, current *Entry) bool {
	return sameOutside(before, current) && (before.Type == Dir || before.CTime.Equal(current.CTime))
}
