package lifecycle

import (
	"context"
	"errors"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// codeBudget says that images take all that they may.
const codeBudget = "snapshot_budget"

// beginImage begins an image. Where the budget is used up, what no row refers to
// makes room first.
func (s *Service) beginImage(ctx context.Context, id string) (sandbox.Draft, error) {
	draft, refused := s.images.Begin(id)
	if fault.CodeOf(refused) != codeBudget {
		return draft, refused
	}
	dropped, err := s.dropLoose(ctx)
	if err != nil {
		s.log.Warn("unreferenced images not dropped", "err", err)
	}
	if dropped == 0 {
		return nil, refused
	}
	s.log.Info("unreferenced images dropped", "images", dropped)
	return s.images.Begin(id)
}

// dropLoose is like dropImages, for a caller that is waiting. It leaves packs alone,
// so that it does not wait for another process that is working on them.
func (s *Service) dropLoose(ctx context.Context) (dropped int, err error) {
	if err := s.dropUnfinished(ctx); err != nil {
		return 0, err
	}
	sizes, err := s.images.Sizes(ctx)
	if err != nil {
		return 0, err
	}
	var errs []error
	for id := range sizes {
		held, err := s.store.HoldsImage(ctx, id)
		if err == nil && !held {
			if err = s.images.Remove(ctx, id); err == nil {
				dropped++
			}
		}
		errs = append(errs, err)
	}
	return dropped, errors.Join(errs...)
}
