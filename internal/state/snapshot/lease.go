package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Lease protects the files of an image from removal. An image may have any number of leases.
type Lease struct {
	s   *Images
	id  string
	sum string
	dir *os.File // with a shared lock

	once sync.Once
	err  error
}

// Lease leases an image. Its small files are verified when Lease returns. Until Verify has
// succeeded, an engine may use the image only for a sandbox that no client can reach. If sum does
// not belong to the image, the error is Invalid with the code "snapshot_damaged". Pages that are
// only in packs are assembled first, which takes longer.
func (s *Images) Lease(ctx context.Context, id, sum string) (_ *Lease, err error) {
	dir, err := s.lockImage(ctx, id, unix.LOCK_SH, true)
	if err != nil {
		return nil, err
	}
	l := &Lease{s: s, id: id, sum: sum, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Release())
		}
	}()
	m, err := s.authentic(id, sum)
	if err != nil {
		return nil, err
	}
	for _, p := range m.Parts {
		if err := s.checkPart(id, p); err != nil {
			return nil, err
		}
	}
	if err := s.flatten(ctx, m); err != nil {
		return nil, err
	}
	if !m.complete() {
		s.remember(id, sum)
	}
	// The time of the manifest is the time of the last use.
	now := s.now()
	if err := s.root.Chtimes(imagePath(id, manifestFile), now, now); err != nil {
		return nil, fmt.Errorf("lease image %s: %w", id, err)
	}
	return l, nil
}

// Dir returns the directory with the files of the image, which must not be changed.
func (l *Lease) Dir() string { return filepath.Join(l.s.dir, imagePath(l.id)) }

// Verify checks that the big file is as committed. It reads the file only once in the life of the
// process.
func (l *Lease) Verify(ctx context.Context) error {
	m, err := l.s.authentic(l.id, l.sum)
	if err != nil {
		return err
	}
	f, err := openRegular(l.s.root, imagePath(l.id, m.Bulk.Name))
	if err != nil {
		return readFault(l.id, m.Bulk.Name, err)
	}
	defer f.Close()
	before, err := identify(f)
	if err != nil {
		return err
	}
	if !m.complete() {
		why := l.s.whyUntrusted(m, before)
		if why == "" {
			return nil
		}
		// Completion adds a second name to the file, and writes the manifest before that.
		if m, err = l.s.authentic(l.id, l.sum); err != nil {
			return err
		}
		if !m.complete() {
			return damaged(l.id, why, nil)
		}
	}
	want, err := parseDigest(m.Bulk.Tree)
	if err != nil {
		return err
	}
	if l.s.known.holds(before, want) {
		return nil
	}
	if before.Bytes != m.Bulk.Bytes {
		return damaged(l.id, m.Bulk.Name+" has another size", nil)
	}
	got, err := treeOf(ctx, f, m.Bulk.Bytes, noProgress)
	if err == nil && got != want || errors.Is(err, errShort) {
		l.s.markChanged(l.id)
		return damaged(l.id, m.Bulk.Name+" was changed", err)
	}
	if err != nil {
		return fmt.Errorf("verify image %s: %w", l.id, err)
	}
	// A file that was changed while it was read is read again the next time.
	if after, err := identify(f); err == nil && after == before {
		l.s.known.add(before, want)
	}
	return nil
}

// Release ends the lease. It may be called more than once.
func (l *Lease) Release() error {
	l.once.Do(func() { l.err = errors.Join(l.dir.Close(), l.s.dropSpoiled(l.id)) })
	return l.err
}

// authentic reads an image's manifest and authenticates it by its sum.
func (s *Images) authentic(id, sum string) (manifest, error) {
	data, err := s.readManifest(id)
	if err != nil {
		return manifest{}, readFault(id, manifestFile, err)
	}
	m, err := openManifest(data, sum, s.declared...)
	if err == nil && m.ID != id {
		err = fmt.Errorf("manifest of %s", m.ID)
	}
	if err != nil {
		return manifest{}, damaged(id, "its manifest is not the one that was committed", err)
	}
	return m, nil
}

func (s *Images) readManifest(id string) ([]byte, error) {
	f, err := openRegular(s.root, imagePath(id, manifestFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxManifestBytes+1))
}

// checkPart verifies a small file.
func (s *Images) checkPart(id string, p part) error {
	name := p.Name
	want, err := parseDigest(p.SHA256)
	if err != nil {
		return err
	}
	f, err := openRegular(s.root, imagePath(id, name))
	if err != nil {
		return readFault(id, name, err)
	}
	defer f.Close()
	before, err := identify(f)
	if err != nil {
		return err
	}
	if before.Bytes != p.Bytes {
		return damaged(id, name+" has another size", nil)
	}
	if s.known.holds(before, want) {
		return nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, p.Bytes+1)); err != nil {
		return fmt.Errorf("read %s of image %s: %w", name, id, err)
	}
	if digest(h.Sum(nil)) != want {
		return damaged(id, name+" was changed", nil)
	}
	if after, err := identify(f); err == nil && after == before {
		s.known.add(before, want)
	}
	return nil
}

// whyUntrusted returns the reason why the big file of an incomplete image cannot be trusted, or "".
func (s *Images) whyUntrusted(m manifest, now identity) string {
	switch {
	case m.Bulk.Boot != s.boot:
		return "the machine went down before it was on the disk"
	case *m.Bulk.Seen != now:
		return m.Bulk.Name + " was changed"
	}
	return ""
}
