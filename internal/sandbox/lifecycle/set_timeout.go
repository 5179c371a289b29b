package lifecycle

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// SetTimeout sets the sandbox's end to d from now, earlier or later. Zero ends it now.
func (s *Service) SetTimeout(ctx context.Context, caller sandbox.Principal, ref string, d time.Duration) (sandbox.Sandbox, error) {
	return s.setEnd(ctx, caller, ref, d, false)
}

// Extend sets the sandbox's end to d from now, unless its present end is later.
func (s *Service) Extend(ctx context.Context, caller sandbox.Principal, ref string, d time.Duration) (sandbox.Sandbox, error) {
	return s.setEnd(ctx, caller, ref, d, true)
}

func (s *Service) setEnd(ctx context.Context, caller sandbox.Principal, ref string, d time.Duration, onlyLater bool) (sandbox.Sandbox, error) {
	if d < 0 {
		return sandbox.Sandbox{}, fault.New(fault.Invalid, "timeout_invalid", "Timeout must not be negative")
	}
	if err := s.planner.checkTimeout(caller, d); err != nil {
		return sandbox.Sandbox{}, err
	}
	r, err := s.resolve(ctx, caller, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	unlock, err := s.operations.locks.acquire(ctx, r.ID)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer unlock()
	if err := s.engines.checkServed(r); err != nil {
		return sandbox.Sandbox{}, err
	}
	if d == 0 && !onlyLater {
		return s.endNow(ctx, r.ID)
	}
	changed, err := s.store.SetEnd(ctx, r.ID, time.Now().Add(d), onlyLater)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	if r, err = s.store.Get(ctx, r.ID); err != nil {
		return sandbox.Sandbox{}, err
	}
	if r.State != sandbox.Running {
		return sandbox.Sandbox{}, sandbox.NotRunning(r)
	}
	if changed {
		s.deadlines.set(r)
		s.deadlines.notify(ctx, r)
		s.note(ctx, r.ID, "info", "end changed", map[string]string{"end_at": r.EndAt.Format(time.RFC3339Nano)})
	}
	return r.Shown(), nil
}

// endNow ends a running or paused sandbox at a caller's request with a zero timeout. The lock of
// the ID must be held.
func (s *Service) endNow(ctx context.Context, id string) (sandbox.Sandbox, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer stop()
	r, err := s.store.Get(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	// A sandbox in a transitional state is left to the operation that set the state.
	if r.State != sandbox.Running && r.State != sandbox.Creating && r.State != sandbox.Paused {
		return sandbox.Sandbox{}, sandbox.NotRunning(r)
	}
	started, err := s.end(ctx, id, sandbox.ReasonKilled, time.Time{})
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	if r, err = s.store.Get(ctx, id); err != nil {
		return sandbox.Sandbox{}, err
	}
	if !started {
		return sandbox.Sandbox{}, sandbox.NotRunning(r)
	}
	return r.Shown(), nil
}
