package workspaces

import (
	"context"

	"github.com/crannog/crannog/internal/sandbox"
)

// DropCopy removes the copy of a sandbox's workspace, if there is one and nothing else refers to
// it.
func (s *Service) DropCopy(ctx context.Context, r sandbox.Row) error {
	copyID := r.Base.Copy
	if copyID == "" && r.Base.CheckRebuildable() != nil {
		copyID = r.ID // a row of an earlier version may not name its copy
	}
	if s.deps.Copies == nil || copyID == "" {
		return nil
	}
	held, err := s.holdsCopy(ctx, copyID, r.ID)
	if err != nil || held {
		return err
	}
	return s.deps.Copies.Remove(copyID)
}

// holdsCopy reports whether anything other than the sandbox except needs the copy of a workspace.
// Retained changes are checked last, because they are stored while their sandbox still has the
// copy.
func (s *Service) holdsCopy(ctx context.Context, copyID, except string) (bool, error) {
	held, err := s.deps.Rows.Holds(ctx, copyID, except)
	if err != nil || held {
		return held, err
	}
	return s.deps.Retained != nil && s.deps.Retained.Needs(copyID), nil
}

// SweepCopies removes unreferenced copies.
func (s *Service) SweepCopies(ctx context.Context) error {
	if s.deps.Copies == nil {
		return nil
	}
	return sandbox.Sweep(s.deps.Copies, func(id string) (bool, error) {
		held, err := s.holdsCopy(ctx, id, "")
		if err != nil || held {
			return held, err
		}
		r, err := s.deps.Rows.Get(ctx, id)
		if isNotFound(err) {
			return false, nil
		}
		return err == nil && r.State != sandbox.Stopped && r.Base.CheckRebuildable() != nil, err
	})
}

// DropCopyOf removes the copy of a workspace if nothing refers to it.
func (s *Service) DropCopyOf(ctx context.Context, copyID string) error {
	if s.deps.Copies == nil || copyID == "" {
		return nil
	}
	held, err := s.holdsCopy(ctx, copyID, "")
	if err != nil || held {
		return err
	}
	if r, err := s.deps.Rows.Get(ctx, copyID); err == nil && r.State != sandbox.Stopped || err != nil && !isNotFound(err) {
		return err
	}
	return s.deps.Copies.Remove(copyID)
}
