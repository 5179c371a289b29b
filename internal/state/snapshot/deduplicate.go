package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// errUnknown is returned for an image whose expected sum this process does not know.
var errUnknown = errors.New("the image's sum is unknown")

// Deduplicate completes all committed images. It hashes and syncs big files, moves pages into
// packs, removes unneeded packs, and removes the unpacked copies of images that exceed their share
// of the disk budget. It uses at most half of a processor, and may be interrupted at any time. If
// completing one image fails, it continues with the others. It returns how much disk space was
// freed.
func (s *Images) Deduplicate(ctx context.Context) (freed int64, err error) {
	s.deduplicating.Lock()
	defer s.deduplicating.Unlock()
	return s.deduplicateAll(ctx)
}

// deduplicateAll is Deduplicate with s.deduplicating already held.
func (s *Images) deduplicateAll(ctx context.Context) (freed int64, err error) {
	before, err := s.measure()
	if err == nil {
		err = s.deduplicate(ctx)
	}
	after, failed := s.measure()
	return max(before-after, 0), errors.Join(err, failed)
}

func (s *Images) deduplicate(ctx context.Context) error {
	errs := []error{s.ready(), s.sweep()}
	ids, err := s.list()
	if err != nil {
		return fmt.Errorf("complete images: %w", err)
	}
	done := map[string]bool{}
	for _, id := range ids {
		if err := s.deduplicateLineage(ctx, id, done); err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
	}
	// A process that ended may have left packs that no image needs.
	if !s.deduplicating.collected {
		err := s.collect(ctx, false)
		s.deduplicating.collected = err == nil
		errs = append(errs, err)
	}
	return errors.Join(append(errs, s.trim())...)
}

// deduplicateLineage completes the ancestors of an image and then the image, because an image shares
// pages with the packs of its ancestors.
func (s *Images) deduplicateLineage(ctx context.Context, id string, done map[string]bool) error {
	var line []manifest
	for id != "" && !done[id] {
		done[id] = true
		m, err := s.peek(id)
		if err != nil {
			s.warn(id, err)
			break
		}
		if m.ID == "" {
			break // the image was removed
		}
		line = append(line, m)
		id = m.Parent
	}
	var errs []error
	for _, m := range slices.Backward(line) {
		if err := s.completionError(m.ID, s.deduplicateOne(ctx, m)); err != nil {
			s.deduplicating.collected = false
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// peek reads a manifest without authenticating it. It returns an empty manifest for an image that
// was removed.
func (s *Images) peek(id string) (manifest, error) {
	data, err := s.readManifest(id)
	if errors.Is(err, os.ErrNotExist) {
		return manifest{}, nil
	}
	if err != nil {
		return manifest{}, err
	}
	m, err := s.decode(data)
	if err == nil && m.ID != id {
		err = fmt.Errorf("manifest of %s", m.ID)
	}
	return m, err
}

// completionError returns the error of completing an image. It returns nil if the error concerns
// only that image: it is in use, removed or damaged, or its sum is unknown.
func (s *Images) completionError(id string, err error) error {
	switch {
	case errors.Is(err, errBusy), errors.Is(err, errUnknown), fault.KindOf(err) == fault.NotFound:
	case fault.CodeOf(err) == "snapshot_damaged":
		s.warn(id, err)
	case err != nil:
		return fmt.Errorf("complete image %s: %w", id, err)
	}
	return nil
}

// warn logs, once for each image, that the image is damaged or cannot be read.
func (s *Images) warn(id string, err error) {
	s.notes.mu.Lock()
	warned := s.notes.warned[id]
	s.notes.warned[id] = true
	s.notes.mu.Unlock()
	if !warned {
		s.log.Warn("snapshot is damaged or cannot be read", "snapshot", id, "err", err)
	}
}

func (s *Images) deduplicateOne(ctx context.Context, m manifest) error {
	packable := m.Bulk.Kind == Pages && m.Bulk.Bytes > 0 && m.Bulk.Bytes%pageBytes == 0
	if m.complete() && (!packable || s.has(imagePath(m.ID, indexFile))) {
		return nil
	}
	return s.withSharedLock(ctx, m.ID, func(work context.Context) error {
		err := s.finish(work, m.ID, treeSlowly)
		if err == nil && packable && !s.has(imagePath(m.ID, indexFile)) {
			err = s.pack(work, m)
		}
		return err
	})
}

// withSharedLock calls do with a shared lock on an image. It cancels the call's context when the
// image is to be removed.
func (s *Images) withSharedLock(ctx context.Context, id string, do func(context.Context) error) error {
	d, err := s.lockImage(ctx, id, unix.LOCK_SH, false)
	if err != nil {
		return err
	}
	defer d.Close()
	work, done := s.interruptible(ctx, id)
	defer done()
	err = do(work)
	if work.Err() != nil && ctx.Err() == nil {
		return errBusy // the image is being removed
	}
	return diskFault(err)
}

// interruptible returns a context that interrupt cancels, for work on one image.
func (s *Images) interruptible(ctx context.Context, id string) (work context.Context, done func()) {
	work, cancel := context.WithCancel(ctx)
	s.notes.mu.Lock()
	defer s.notes.mu.Unlock()
	s.notes.current, s.notes.stop = id, cancel
	return work, func() {
		s.notes.mu.Lock()
		defer s.notes.mu.Unlock()
		s.notes.current, s.notes.stop = "", nil
		cancel()
	}
}

// interrupt cancels the completion of one image.
func (s *Images) interrupt(id string) {
	s.notes.mu.Lock()
	defer s.notes.mu.Unlock()
	if s.notes.current == id && s.notes.stop != nil {
		s.notes.stop()
	}
}
