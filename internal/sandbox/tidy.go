package sandbox

import (
	"context"
	"errors"
	"time"
)

// settleImages asks for what images have in common to be stored once.
func (s *Service) settleImages() {
	select {
	case s.unsettled <- struct{}{}:
	default:
	}
}

// tidy settles images in the background.
func (s *Service) tidy() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.unsettled:
		}
		if err := s.images.Settle(s.ctx); err != nil && s.ctx.Err() == nil {
			s.log.Warn("images not settled", "err", err)
		}
	}
}

// prune drops snapshots that are older than the operator keeps them, and data
// that nothing refers to.
func (s *Service) prune(ctx context.Context) error {
	if s.images == nil {
		return nil
	}
	var errs []error
	if s.settings.SnapshotRetention > 0 {
		old, err := s.store.ListSnapshots(ctx, SnapshotQuery{AllOwners: true, CreatedBefore: time.Now().Add(-s.settings.SnapshotRetention)})
		errs = append(errs, err)
		for _, n := range old {
			errs = append(errs, s.removeSnapshot(ctx, n))
		}
	}
	freed, err := s.dropImages(ctx)
	if freed > 0 {
		s.log.Info("data of no snapshot dropped", "bytes", freed)
	}
	s.settleImages()
	return errors.Join(append(errs, err)...)
}
