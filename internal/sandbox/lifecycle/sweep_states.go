package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog/internal/sandbox"
)

// sweepStates reconciles saved states with the rows that name them, and removes snapshots that are
// older than the configured age. It returns the number of unreferenced bytes that it freed.
func (s *Service) sweepStates(ctx context.Context) (int64, error) {
	if s.states.Available() != nil {
		return 0, nil
	}
	errs := []error{s.dropLost(ctx)}
	if s.settings.SnapshotRetention > 0 {
		old, err := s.store.ListSnapshots(ctx, sandbox.SnapshotQuery{AllOwners: true, CreatedBefore: time.Now().Add(-s.settings.SnapshotRetention)})
		errs = append(errs, err)
		for _, n := range old {
			// The engine may be missing by mistake, and removed data cannot be restored.
			if s.engines.Has(n.Engine) {
				errs = append(errs, s.removeSnapshot(ctx, n))
			}
		}
	}
	freed, err := s.states.DropUnreferenced(ctx)
	return freed, errors.Join(append(errs, err)...)
}

// dropLost marks paused sandboxes whose image is missing as lost, and removes snapshots without
// one.
func (s *Service) dropLost(ctx context.Context) error {
	paused, snapshots, err := s.states.Missing(ctx)
	errs := []error{err}
	for _, r := range paused {
		errs = append(errs, s.operations.locked(ctx, r.ID, func(ctx context.Context, id string) error { return s.endLost(ctx, r) }))
	}
	for _, n := range snapshots {
		s.log.Error("snapshot dropped: its data is gone", "snapshot", n.ID, "sandbox", n.Sandbox)
		errs = append(errs, s.store.DeleteSnapshot(ctx, n.ID))
	}
	return errors.Join(errs...)
}

// endLost ends a paused sandbox whose image is missing. The lock of the ID must be held.
func (s *Service) endLost(ctx context.Context, old sandbox.Row) error {
	r, err := s.store.Get(ctx, old.ID)
	if err != nil || r.State != sandbox.Paused || r.Saved.Image != old.Saved.Image {
		return ignoreUnknown(err)
	}
	s.log.Error("paused sandbox lost: its data is gone", "sandbox", r.ID)
	moved, err := s.store.Move(ctx, r.ID, sandbox.Move{From: []sandbox.State{sandbox.Paused}, To: sandbox.Stopping, Reason: sandbox.ReasonLost, Run: r.Run})
	if err != nil || !moved {
		return err
	}
	return s.finish(ctx, r.ID, time.Time{})
}

// Programs returns the paths of all host programs that sandboxes and snapshots need, including
// those that are not running.
func (s *Service) Programs(ctx context.Context) (map[string]bool, error) {
	need := map[string]bool{}
	rows, err := s.store.List(ctx, sandbox.Query{AllOwners: true})
	if err != nil {
		return nil, err
	}
	saved, err := s.store.ListSnapshots(ctx, sandbox.SnapshotQuery{AllOwners: true, Templates: true})
	if err != nil {
		return nil, err
	}
	add := func(b sandbox.Base) {
		need[b.Image.View().Dir] = true
		for _, bind := range b.Image.View().Binds {
			need[bind.Source] = true
		}
		if packed := b.Image.View().Packed; packed != nil {
			need[packed.File] = true
		}
	}
	for _, r := range rows {
		add(r.Base)
	}
	for _, n := range saved {
		add(n.Base)
	}
	return need, nil
}
