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

// Base is what a sandbox's files are compared with.
type Base struct {
	// Start is the tree as the sandbox got it.
	Start []Entry
	// Brought are files of Outside as an earlier Apply left them, which stand
	// for those of Start. One without a type was removed.
	Brought []Entry
	// Content has Start's files, if they lie somewhere else than in Outside.
	// Nil is Outside, as far as its files are what Start says.
	Content *os.Root
	// Outside is the directory that changes would come out to; nil if there is
	// none.
	Outside *os.Root
}

var (
	errMoved   = errors.New("the file is another one by now")
	errUnknown = errors.New("the file's earlier content is unknown")
)

// hostFiles reads files of a directory of the host's.
type hostFiles struct{ dir *os.File }

// open opens a file that must still be what it was when it was listed.
func (h hostFiles) open(e *Entry) (*os.File, error) {
	f, err := beneath(h.dir, e.Path, unix.O_RDONLY)
	if err != nil {
		if notThere(err) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
			return nil, errMoved
		}
		return nil, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		f.Close()
		return nil, err
	}
	now := FromStat(&stat)
	if now.Type != Regular || !stillIs(e, &now) {
		f.Close()
		return nil, errMoved
	}
	return f, nil
}

// was opens what a file was before the sandbox changed it.
func (c *comparison) was(t *trio) (io.ReadCloser, error) {
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

// sumOf reads all of a file.
func sumOf(ctx context.Context, r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, patient{ctx, r}); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// patient is a reader that stops once its context has ended.
type patient struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (p patient) Read(b []byte) (int, error) {
	if err := context.Cause(p.ctx); err != nil {
		return 0, err
	}
	return p.r.Read(b)
}

// sameOutside reports whether a host file is as it was when the sandbox began. The change
// time does not count, which a new name, owner or link changes too: putting a file
// back after a failed Apply changes it.
func sameOutside(was, now *Entry) bool {
	return was.Type == now.Type && was.Mode == now.Mode && (was.Type != Link || was.Target == now.Target) &&
		(was.Type == Dir || was.Size == now.Size && was.Ino == now.Ino && was.MTime.Equal(now.MTime))
}

// stillIs reports whether a host file was not touched at all since it was compared.
func stillIs(was, now *Entry) bool {
	return sameOutside(was, now) && (was.Type == Dir || was.CTime.Equal(now.CTime))
}
