package savedstate

import (
	"context"
	"errors"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// codeBudget is the code of the error that the disk budget of images is used up.
const codeBudget = "snapshot_budget"

// Begin begins an image. If the budget is used up, it first removes images without a row.
func (s *Service) Begin(ctx context.Context, id string) (sandbox.Draft, error) {
	if err := s.Available(); err != nil {
		return nil, err
	}
	draft, beginErr := s.deps.Images.Begin(id)
	if fault.CodeOf(beginErr) != codeBudget {
		return draft, beginErr
	}
	dropped, err := s.dropUnreferencedImages(ctx)
	if err != nil {
		s.deps.Log.Warn("unreferenced images not removed", "err", err)
	}
	if dropped == 0 {
		return nil, beginErr
	}
	s.deps.Log.Info("unreferenced images removed", "images", dropped)
	return s.deps.Images.Begin(id)
}

// Draft begins an image that gets no row, and that is removed with this process.
func (s *Service) Draft() (sandbox.Draft, error) { return s.deps.Images.Begin(s.deps.NewID()) }

// dropUnreferencedImages removes images without a row while a caller waits. Unlike dropImages it
// leaves packs alone, so that it does not wait for another process that is writing them.
func (s *Service) dropUnreferencedImages(ctx context.Context) (dropped int, err error) {
	if err := s.dropUnfinished(ctx); err != nil {
		return 0, err
	}
	sizes, err := s.deps.Images.Sizes(ctx)
	if err != nil {
		return 0, err
	}
	var errs []error
	for id := range sizes {
		held, err := s.deps.Rows.HoldsImage(ctx, id)
		if err == nil && !held {
			if err = s.deps.Images.Remove(ctx, id); err == nil {
				dropped++
			}
		}
		errs = append(errs, err)
	}
	return dropped, errors.Join(errs...)
}

// dropUnfinished removes the rows of snapshots whose processes died while writing them.
func (s *Service) dropUnfinished(ctx context.Context) error {
	unfinished, err := s.deps.Rows.ListSnapshots(ctx, sandbox.SnapshotQuery{AllOwners: true, Templates: true, Unfinished: true})
	if err != nil {
		return err
	}
	for _, n := range unfinished {
		if !s.deps.Dead(n.Process) {
			continue
		}
		if err := s.deps.Rows.DeleteSnapshot(ctx, n.ID); err != nil {
			return err
		}
	}
	return nil
}

// dropImages removes images without a row. A row that names an image is written before the image.
func (s *Service) dropImages(ctx context.Context) (int64, error) {
	if s.deps.Images == nil {
		return 0, nil
	}
	if err := s.dropUnfinished(ctx); err != nil {
		return 0, err
	}
	var failed error
	freed, err := s.deps.Images.Prune(ctx, func(id string) bool {
		held, err := s.deps.Rows.HoldsImage(ctx, id)
		failed = errors.Join(failed, err)
		return held || err != nil // in doubt keep the image
	})
	return freed, errors.Join(err, failed)
}

// Remove removes an image. If the image is in use, a later garbage collection removes it.
func (s *Service) Remove(ctx context.Context, id string) error {
	if s.deps.Images == nil || id == "" {
		return nil
	}
	err := s.deps.Images.Remove(ctx, id)
	if kind := fault.KindOf(err); kind == fault.NotFound || kind == fault.Conflict {
		return nil
	}
	return err
}

// Sized returns the snapshots of rows, with the size that the removal of each would free.
func (s *Service) Sized(ctx context.Context, rows []sandbox.Stored) ([]sandbox.Snapshot, error) {
	out := make([]sandbox.Snapshot, len(rows))
	if len(rows) == 0 || s.deps.Images == nil {
		return out, nil
	}
	sizes, err := s.deps.Images.Sizes(ctx)
	if err != nil {
		return nil, err
	}
	for i, n := range rows {
		n.OwnBytes, n.Needs = sizes[n.ID].Own, n.Base.Needs
		out[i] = n.Snapshot
	}
	return out, nil
}
