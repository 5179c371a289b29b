package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/durable"
)

// CodeWrong is the code of the error for content that does not have the digest or size in its
// manifest.
const CodeWrong = "image_content_wrong"

// Draft is a blob that is being written. At most one process writes a draft of a digest.
type Draft struct {
	s    *Store
	f    *os.File
	want v1.Hash
	size int64 // the required size
	at   int64
	sum  hash.Hash
}

// lockRetry is the interval at which Begin checks whether another writer of the same blob has
// finished.
const lockRetry = 100 * time.Millisecond

// Begin returns a draft of a blob, and continues the draft of an interrupted writer if there is
// one. It returns nil if the blob is in the store, and the error of Limit's function if there is no
// room for it. It waits while another writer has a draft of the blob.
func (s *Store) Begin(ctx context.Context, d v1.Hash, size int64) (*Draft, error) {
	final, err := s.path(d)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.drafts, d.Hex)
	retry := time.NewTicker(lockRetry)
	defer retry.Stop()
	for {
		if existing, ok := s.Size(d); ok {
			if existing == size {
				return nil, nil
			}
			// The content cannot match the digest, because the disk lost a part of it.
			if err := os.Remove(final); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
		if s.reserve != nil {
			if err := s.reserve(size); err != nil {
				return nil, err
			}
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("image blob: %w", err)
		}
		locked, err := lock(f)
		if err == nil && locked && stillNamed(f, path) {
			if _, done := s.Size(d); done {
				// The other writer finished between the check and the lock.
				_ = os.Remove(path)
				f.Close()
				continue
			}
			return s.resume(f, d, size)
		}
		f.Close()
		if err != nil {
			return nil, err
		}
		if locked {
			continue // the draft became a blob, or was swept
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-retry.C:
		}
	}
}

// lock takes the exclusive lock of an open file and reports whether it got it.
func lock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// stillNamed reports whether path refers to the open file.
func stillNamed(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(open, named)
}

// resume computes the hash of the draft's present content.
func (s *Store) resume(f *os.File, d v1.Hash, size int64) (*Draft, error) {
	draft := &Draft{s: s, f: f, want: d, size: size, sum: sha256.New()}
	n, err := io.Copy(draft.sum, f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("image blob: %w", err)
	}
	draft.at = n
	if n > size {
		if err := draft.Reset(); err != nil {
			f.Close()
			return nil, err
		}
	}
	return draft, nil
}

// At returns the number of bytes in the draft.
func (d *Draft) At() int64 { return d.at }

// Reset discards the draft's content.
func (d *Draft) Reset() error {
	if _, err := d.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	d.at = 0
	d.sum.Reset()
	return d.f.Truncate(0)
}

// Write implements io.Writer. It rejects content beyond the stated size at once, so that a registry
// cannot fill the disk with one blob.
func (d *Draft) Write(p []byte) (int, error) {
	if d.at+int64(len(p)) > d.size {
		return 0, fault.Newf(fault.Unavailable, CodeWrong, "the source sends more than the %d bytes that the manifest states for %s", d.size, d.want)
	}
	n, err := d.f.Write(p)
	d.sum.Write(p[:n])
	d.at += int64(n)
	return n, err
}

// Commit verifies the draft and makes it a blob that survives a loss of power. It discards wrong
// content.
func (d *Draft) Commit() error {
	defer d.f.Close()
	got := hex.EncodeToString(d.sum.Sum(nil))
	if d.at != d.size || got != d.want.Hex {
		text := fmt.Sprintf("the content has the digest sha256:%s, not %s", got, d.want)
		if d.at != d.size {
			text = fmt.Sprintf("the content of %s has %d bytes, and its manifest states %d", d.want, d.at, d.size)
		}
		// Continuing wrong content would fail again.
		return errors.Join(fault.New(fault.Unavailable, CodeWrong, text).WithHint("the registry or a proxy has changed the image; pull it again"), os.Remove(d.f.Name()))
	}
	final, err := d.s.path(d.want)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"sync", d.f.Sync},
		{"name", func() error { return os.Rename(d.f.Name(), final) }},
		{"sync directory", func() error { return durable.SyncDir(d.s.dir) }},
	} {
		if d.s.step != nil {
			if err := d.s.step(step.name); err != nil {
				return err
			}
		}
		if err := step.do(); err != nil {
			return fmt.Errorf("image blob: %w", err)
		}
	}
	return nil
}

// Close closes a draft and preserves its content for a later Begin. After Commit it does nothing.
func (d *Draft) Close() {
	_ = d.f.Close() // its content is not guaranteed to be durable
}
