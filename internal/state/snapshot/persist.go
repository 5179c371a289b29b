package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// leftFor limits how long Persist works on images of other processes: a command that only lists
// sandboxes must not wait for the gigabytes of a process that was killed.
const leftFor = 5 * time.Second

// Persist hashes and syncs images, so that they survive a power failure. It is the part of
// Deduplicate that cannot wait. Its caller waits for it, so it uses all available processor time.
// It handles the images of this process first, then, for a few seconds, those of processes that
// were killed. It returns an error if images of this process are left.
func (s *Images) Persist(ctx context.Context) error {
	s.deduplicating.Lock()
	defer s.deduplicating.Unlock()
	ids, err := s.list()
	if err != nil {
		return fmt.Errorf("persist images: %w", err)
	}
	var own, left []manifest
	for _, id := range ids {
		m, err := s.peek(id)
		if err != nil {
			s.warn(id, err)
			continue
		}
		switch {
		case m.ID == "" || m.complete():
		case s.remembers(id):
			own = append(own, m)
		default:
			left = append(left, m)
		}
	}
	if err := s.persistAll(ctx, own); err != nil {
		return err
	}
	brief, cancel := context.WithTimeout(ctx, leftFor)
	defer cancel()
	if err := s.persistAll(brief, left); err != nil {
		s.log.Warn("images of earlier processes are not on the disk yet", "err", err)
	}
	return nil
}

// persistAll persists images. It starts with the smallest, so that as many as possible are durable
// when the time is up.
func (s *Images) persistAll(ctx context.Context, all []manifest) error {
	slices.SortFunc(all, func(a, b manifest) int { return cmp.Compare(a.Bulk.Bytes, b.Bulk.Bytes) })
	var errs []error
	for _, m := range all {
		errs = append(errs, s.completionError(m.ID, s.withSharedLock(ctx, m.ID, func(work context.Context) error { return s.finish(work, m.ID, treeOf) })))
		if ctx.Err() != nil {
			break // the last error has the reason
		}
	}
	return errors.Join(errs...)
}

func (s *Images) remembers(id string) bool {
	s.notes.mu.Lock()
	defer s.notes.mu.Unlock()
	return s.notes.sums[id] != ""
}
