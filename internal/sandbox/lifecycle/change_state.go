package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// awaitEvery is the interval at which the row of a sandbox is read while another process pauses or
// resumes it.
const awaitEvery = 20 * time.Millisecond

// lockForChange waits until no other operation is changing the sandbox, then locks it for a
// change of its state. The returned function unlocks it. The returned context ends
// when the sandbox is removed or the Service is closed.
func (s *Service) lockForChange(ctx context.Context, caller sandbox.Principal, ref string) (context.Context, sandbox.Row, func(), error) {
	r, err := s.resolve(ctx, caller, ref)
	if err != nil {
		return nil, sandbox.Row{}, nil, err
	}
	return s.lockForChangeOf(ctx, r.ID)
}

func (s *Service) lockForChangeOf(ctx context.Context, id string) (context.Context, sandbox.Row, func(), error) {
	unlock, err := s.operations.locks.acquire(ctx, id)
	if err != nil {
		return nil, sandbox.Row{}, nil, err
	}
	ctx, done, err := s.operations.begin(ctx, id)
	if err != nil {
		unlock()
		return nil, sandbox.Row{}, nil, err
	}
	release := func() { done(); unlock() }
	r, err := s.stableRow(ctx, id)
	if err != nil {
		release()
		return nil, sandbox.Row{}, nil, err
	}
	return ctx, r, release, nil
}

// stableRow returns the row of a sandbox once no other process has it in a transitional state. The
// lock of the ID must be held.
func (s *Service) stableRow(ctx context.Context, id string) (sandbox.Row, error) {
	for {
		r, err := s.store.Get(ctx, id)
		if err == nil {
			err = s.engines.checkServed(r)
		}
		if err != nil || r.State != sandbox.Pausing && r.State != sandbox.Resuming {
			return r, err
		}
		if s.operations.isStranded(s.process, r) {
			if err := s.repair(ctx, id); err != nil {
				return sandbox.Row{}, err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return sandbox.Row{}, canceled(context.Cause(ctx))
		case <-time.After(awaitEvery):
		}
	}
}

// move takes a sandbox on which this Service acts to its next state. If the write fails, the
// maintenance loop repairs the row.
func (s *Service) move(ctx context.Context, id string, m sandbox.Move) (bool, error) {
	moved, err := s.store.Move(ctx, id, m)
	s.operations.recordMove(id, err)
	return moved, err
}

// withoutCaller returns a context for work that must be finished even if the caller goes
// away.
func withoutCaller(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
}

// unlessRemoved returns a context that ends early only if the sandbox is removed. It does not end
// because a caller goes away or this process shuts down.
func unlessRemoved(ctx context.Context) (context.Context, func()) {
	detached, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); fault.CodeOf(cause) == sandbox.CodeRemoved {
			cancel(cause)
		}
	})
	return detached, func() { stop(); cancel(nil) }
}

// stateConflict returns the error for a sandbox in a state that does not allow the operation.
func stateConflict(r sandbox.Row) error {
	switch r.State {
	case sandbox.Stopping:
		return fault.Newf(fault.Conflict, "sandbox_stopping", "Sandbox \"%s\" is being stopped", r.ID)
	case sandbox.Paused:
		return alreadyPaused(r.ID)
	case sandbox.Running, sandbox.Pausing, sandbox.Resuming:
		return fault.Newf(fault.Conflict, sandbox.CodeChanged, "Sandbox \"%s\" has changed since the request began; try again", r.ID)
	case sandbox.Creating, sandbox.Waiting, sandbox.Stopped:
	}
	return sandbox.NotRunning(r)
}

func alreadyPaused(id string) error {
	return fault.Newf(fault.Conflict, "sandbox_paused", "Sandbox \"%s\" is paused", id).WithHint("crannog resume " + id)
}

// stopInstance frees an instance's resources other than its state on disk.
func (s *Service) stopInstance(ctx context.Context, r sandbox.Row) error {
	e, err := s.engines.Of(r.Engine)
	if err != nil {
		return err
	}
	return errors.Join(e.Remove(ctx, r.ID), s.detach(ctx, r))
}
