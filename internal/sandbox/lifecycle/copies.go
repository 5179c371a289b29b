package lifecycle

import (
	"context"

	"github.com/crannog/crannog/internal/sandbox"
)

// dropCopy removes the copy of a sandbox's workspace, if there is one and
// nothing else refers to it.
func (s *Service) dropCopy(ctx context.Context, r sandbox.Row) error {
	of := r.Base.Copy
	if of == "" && r.Base.CheckRebuildable() != nil {
		of = r.ID // a row of an earlier version does not say
	}
	if s.copies == nil || of == "" {
		return nil
	}
	held, err := s.holdsCopy(ctx, of, r.ID)
	if err != nil || held {
		return err
	}
	return s.copies.Remove(of)
}

// holdsCopy reports whether anything but a sandbox needs the copy of a
// workspace. What is kept is asked last: it is kept while its sandbox still
// holds the copy.
func (s *Service) holdsCopy(ctx context.Context, of, but string) (bool, error) {
	held, err := s.store.Holds(ctx, of, but)
	if err != nil || held {
		return held, err
	}
	return s.kept != nil && s.kept.Needs(of), nil
}

// dropCopies removes copies that nothing refers to.
func (s *Service) dropCopies(ctx context.Context) error {
	if s.copies == nil {
		return nil
	}
	return sandbox.Sweep(s.copies, func(id string) (bool, error) {
		held, err := s.holdsCopy(ctx, id, "")
		if err != nil || held {
			return held, err
		}
		r, err := s.store.Get(ctx, id)
		return err == nil && r.State != sandbox.Stopped && r.Base.CheckRebuildable() != nil, ignoreUnknown(err)
	})
}
