package snapshot

import (
	"context"
	"encoding/hex"
	"errors"

	"golang.org/x/sys/unix"
)

// finish hashes and syncs the files of an image and updates its manifest. The caller holds a lock
// on the image, possibly a shared one.
func (s *Images) finish(ctx context.Context, id string, tree hasher) error {
	data, err := s.readManifest(id)
	if err != nil {
		return readFault(id, manifestFile, err)
	}
	if m, err := s.decode(data); err != nil || m.complete() {
		return err
	}
	sum, err := s.sumOf(ctx, id)
	if err != nil {
		return err
	}
	m, err := s.authentic(id, sum)
	if err != nil {
		return err
	}
	sha, seen, err := s.readBulk(ctx, m, tree)
	if err != nil {
		// Another process may have done this already, and then have added the second name.
		if now, rerr := s.authentic(id, sum); rerr == nil && now.complete() {
			return nil
		}
		return err
	}
	for _, p := range m.Parts {
		if err := s.checkPart(id, p); err != nil {
			return err
		}
		if err := s.syncFile(imagePath(id, p.Name)); err != nil {
			return err
		}
	}
	m.Bulk.Tree, m.Bulk.Seen, m.Bulk.Boot = hex.EncodeToString(sha[:]), nil, ""
	if data, err = m.seal(sum); err != nil {
		return err
	}
	g, err := s.newStage(completeStage)
	if err != nil {
		return err
	}
	s.step("finish: manifest")
	if err = errors.Join(s.replaceManifest(g, id, data), g.drop()); err != nil {
		return diskFault(err)
	}
	s.known.add(seen, sha)
	s.step("finish: sync")
	if err := errors.Join(s.syncDir(imagePath(id)), s.syncDir(imagesDir)); err != nil {
		return err
	}
	s.notes.mu.Lock()
	delete(s.notes.sums, id)
	s.notes.mu.Unlock()
	return nil
}

// replaceManifest replaces an image's manifest. The file's time, which is the time of the last use,
// is preserved.
func (s *Images) replaceManifest(g *stage, id string, data []byte) error {
	if err := g.write(manifestFile, data, true); err != nil {
		return err
	}
	info, err := s.root.Lstat(imagePath(id, manifestFile))
	if err != nil {
		return err
	}
	if err := s.root.Chtimes(g.path(manifestFile), info.ModTime(), info.ModTime()); err != nil {
		return err
	}
	s.step("finish: rename")
	return s.root.Rename(g.path(manifestFile), imagePath(id, manifestFile))
}

// readBulk hashes a big file that was not changed since Commit. It starts writing the file to the
// disk at the same time, so that the final sync is short.
func (s *Images) readBulk(ctx context.Context, m manifest, tree hasher) (digest, identity, error) {
	fail := func(err error) (digest, identity, error) { return digest{}, identity{}, err }
	f, err := openRegular(s.root, imagePath(m.ID, m.Bulk.Name))
	if err != nil {
		return fail(readFault(m.ID, m.Bulk.Name, err))
	}
	defer f.Close()
	seen, err := identify(f)
	if err != nil {
		return fail(err)
	}
	if why := s.whyUntrusted(m, seen); why != "" {
		return fail(damaged(m.ID, why, nil))
	}
	sum, err := tree(ctx, f, m.Bulk.Bytes, func(off, n int64) {
		// This is only a hint. Sync below reports errors.
		_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
	})
	if errors.Is(err, errShort) {
		return fail(damaged(m.ID, m.Bulk.Name+" was changed", err))
	}
	if err != nil {
		return fail(err)
	}
	s.step("finish: sync files")
	if err := f.Sync(); err != nil {
		return fail(diskFault(err))
	}
	if now, err := identify(f); err != nil || now != seen {
		return fail(errors.Join(damaged(m.ID, m.Bulk.Name+" was changed", nil), err))
	}
	return sum, seen, nil
}

func (s *Images) syncFile(name string) error {
	f, err := openRegular(s.root, name)
	if err != nil {
		return err
	}
	return diskFault(errors.Join(f.Sync(), f.Close()))
}

// sumOf returns the key of an image.
func (s *Images) sumOf(ctx context.Context, id string) (string, error) {
	s.notes.mu.Lock()
	sum := s.notes.sums[id]
	s.notes.mu.Unlock()
	if sum != "" {
		return sum, nil
	}
	if s.sum == nil {
		return "", errUnknown
	}
	sum, err := s.sum(ctx, id)
	if err == nil && sum == "" {
		err = errUnknown
	}
	return sum, err
}
