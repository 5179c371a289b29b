package snapshot

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// errUnknown is an image whose Sum nobody here knows.
var errUnknown = errors.New("nobody knows its sum")

// Settle finishes what Commit leaves for later, for all images: it hashes and
// syncs big files, moves pages into packs, drops packs that nobody needs, and
// keeps copies within their share. It leaves the processor to others half of
// the time, and may end at any moment. An image that cannot be settled does
// not keep others from it.
func (s *Images) Settle(ctx context.Context) error {
	s.settling.Lock()
	defer s.settling.Unlock()
	errs := []error{s.ready(), s.sweep()}
	ids, err := s.list()
	if err != nil {
		return fmt.Errorf("settle images: %w", err)
	}
	done := map[string]bool{}
	for _, id := range ids {
		if err := s.settleLine(ctx, id, done); err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
	}
	// A process that died may have left packs that nobody came to need.
	if !s.collected {
		err := s.collect(ctx, false)
		s.collected = err == nil
		errs = append(errs, err)
	}
	errs = append(errs, s.trim())
	_, err = s.measure()
	return errors.Join(append(errs, err)...)
}

// settleLine settles an image after its ancestors, from whose packs it takes
// pages.
func (s *Images) settleLine(ctx context.Context, id string, done map[string]bool) error {
	var line []manifest
	for id != "" && !done[id] {
		done[id] = true
		data, err := s.readManifest(id)
		if errors.Is(err, os.ErrNotExist) {
			break // it has no image any more
		}
		var m manifest
		if err == nil {
			m, err = decodeManifest(data)
		}
		if err == nil && m.ID != id {
			err = fmt.Errorf("manifest of %s", m.ID)
		}
		if err != nil {
			s.warn(id, err)
			break
		}
		line = append(line, m)
		id = m.Parent
	}
	var errs []error
	for i := len(line) - 1; i >= 0; i-- {
		err := s.settleOne(ctx, line[i])
		switch {
		case errors.Is(err, errBusy), errors.Is(err, errUnknown), fault.KindOf(err) == fault.NotFound:
		case fault.CodeOf(err) == "snapshot_damaged":
			s.warn(line[i].ID, err)
		case err != nil:
			s.collected = false
			errs = append(errs, fmt.Errorf("settle image %s: %w", line[i].ID, err))
		}
	}
	return errors.Join(errs...)
}

// warn puts damage into the log, once.
func (s *Images) warn(id string, err error) {
	s.mu.Lock()
	said := s.warned[id]
	s.warned[id] = true
	s.mu.Unlock()
	if !said {
		s.log.Warn("snapshot is damaged", "snapshot", id, "err", err)
	}
}

func (s *Images) settleOne(ctx context.Context, m manifest) error {
	packable := m.Bulk.Name == PagesFile && m.Bulk.Bytes > 0 && m.Bulk.Bytes%pageBytes == 0
	if m.settled() && (!packable || s.has(imagePath(m.ID, indexFile))) {
		return nil
	}
	d, err := s.hold(ctx, m.ID, unix.LOCK_SH, false)
	if err != nil {
		return err
	}
	defer d.Close()
	work, done := s.interruptible(ctx, m.ID)
	defer done()
	err = s.finish(work, m.ID)
	if err == nil && packable && !s.has(imagePath(m.ID, indexFile)) {
		err = s.pack(work, m)
	}
	if work.Err() != nil && ctx.Err() == nil {
		return errBusy // somebody removes it
	}
	return diskFault(err)
}

// interruptible is a context that interrupt ends.
func (s *Images) interruptible(ctx context.Context, id string) (work context.Context, done func()) {
	work, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.stop = id, cancel
	return work, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.current, s.stop = "", nil
		cancel()
	}
}

// interrupt ends the settling of one image.
func (s *Images) interrupt(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == id && s.stop != nil {
		s.stop()
	}
}

// finish hashes and syncs the files of an image and says so in its manifest. A
// lock is held.
func (s *Images) finish(ctx context.Context, id string) error {
	data, err := s.readManifest(id)
	if err != nil {
		return readFault(id, manifestFile, err)
	}
	if m, err := decodeManifest(data); err != nil || m.settled() {
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
	tree, seen, err := s.readBulk(ctx, m)
	if err != nil {
		return err
	}
	for name, p := range m.parts() {
		if err := s.checkPart(id, name, p); err != nil {
			return err
		}
		if err := s.syncFile(imagePath(id, name)); err != nil {
			return err
		}
	}
	m.Bulk.Tree, m.Bulk.Seen, m.Bulk.Boot = hex.EncodeToString(tree[:]), nil, ""
	if data, err = m.seal(sum); err != nil {
		return err
	}
	g, err := s.newStage("settle")
	if err != nil {
		return err
	}
	s.step("finish: manifest")
	if err = errors.Join(s.replaceManifest(g, id, data), g.drop()); err != nil {
		return diskFault(err)
	}
	s.known.add(seen, tree)
	s.step("finish: sync")
	if err := errors.Join(s.syncDir(imagePath(id)), s.syncDir(imagesDir)); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.sums, id)
	s.mu.Unlock()
	return nil
}

// replaceManifest puts another manifest in the place of the first. Its time,
// that of the last use, stays.
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

// readBulk hashes a big file that nobody has touched since Commit, and sends it
// to the disk bit by bit, so that the sync at the end holds nobody up.
func (s *Images) readBulk(ctx context.Context, m manifest) (digest, identity, error) {
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
	if why := s.untouched(m, seen); why != "" {
		return fail(damaged(m.ID, why, nil))
	}
	tree, err := treeSlowly(ctx, f, m.Bulk.Bytes, func(off, n int64) {
		// Only a hint: Sync below says whether it is on the disk.
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
	return tree, seen, nil
}

func (s *Images) syncFile(name string) error {
	f, err := openRegular(s.root, name)
	if err != nil {
		return err
	}
	return diskFault(errors.Join(f.Sync(), f.Close()))
}

// sumOf finds the key of an image.
func (s *Images) sumOf(ctx context.Context, id string) (string, error) {
	s.mu.Lock()
	sum := s.sums[id]
	s.mu.Unlock()
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
