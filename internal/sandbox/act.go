package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// awaitEvery is how often the row of a sandbox is read that another process
// is pausing or resuming.
const awaitEvery = 20 * time.Millisecond

// act waits until no other operation is changing the sandbox, then locks it for a
// change of its state. The returned function unlocks it. The returned context ends
// when the sandbox is removed or the Service is closed.
func (s *Service) act(ctx context.Context, who Principal, ref string) (context.Context, Record, func(), error) {
	r, err := s.resolve(ctx, who, ref)
	if err != nil {
		return nil, Record{}, nil, err
	}
	return s.actOn(ctx, r.ID)
}

func (s *Service) actOn(ctx context.Context, id string) (context.Context, Record, func(), error) {
	unlock, err := s.locks.acquire(ctx, id)
	if err != nil {
		return nil, Record{}, nil, err
	}
	ctx, done, err := s.begin(ctx, id)
	if err != nil {
		unlock()
		return nil, Record{}, nil, err
	}
	release := func() { done(); unlock() }
	r, err := s.settled(ctx, id)
	if err != nil {
		release()
		return nil, Record{}, nil, err
	}
	return ctx, r, release, nil
}

// settled reads the row of a sandbox once no other process takes it through a
// passing state. The lock of the ID must be held.
func (s *Service) settled(ctx context.Context, id string) (Record, error) {
	for {
		r, err := s.store.Get(ctx, id)
		if err != nil || r.State != Pausing && r.State != Resuming {
			return r, err
		}
		if s.stranded(r) {
			if err := s.mend(ctx, id); err != nil {
				return Record{}, err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return Record{}, canceled(context.Cause(ctx))
		case <-time.After(awaitEvery):
		}
	}
}

// stranded reports whether a row in a transitional state has no process left to
// finish it. Either the process that set the state is dead, or it is this one and it
// failed to write the outcome.
func (s *Service) stranded(r Record) bool {
	if r.State != Pausing && r.State != Resuming {
		return false
	}
	s.mu.RLock()
	owed := s.unwritten[r.ID]
	s.mu.RUnlock()
	return owed || r.Actor != s.self && !s.alive(r.Actor)
}

// move takes a sandbox that this Service acts on to its next state. What
// cannot be written is found again by the attendant.
func (s *Service) move(ctx context.Context, id string, m Move) (bool, error) {
	moved, err := s.store.Move(ctx, id, m)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch code := fault.CodeOf(err); {
	case err == nil:
		delete(s.unwritten, id)
	case code == CodeTooMany || code == CodeTooManyPaused:
		// Its row is as it was: whatever state it is in later is not ours.
	default:
		s.unwritten[id] = true
	}
	return moved, err
}

// What a Store refuses because of how many there are.
const (
	CodeTooMany       = "too_many_sandboxes" // that are live
	CodeTooManyPaused = "too_many_paused"
)

// lasting returns a context for work that must be finished even if the caller goes
// away.
func lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
}

// unlessRemoved is a context that ends early only because the sandbox is removed,
// and not because somebody goes away or this process is to end.
func unlessRemoved(ctx context.Context) (context.Context, func()) {
	lasts, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if because := context.Cause(ctx); fault.CodeOf(because) == CodeRemoved {
			cancel(because)
		}
	})
	return lasts, func() { stop(); cancel(nil) }
}

// CodeChanged says that somebody else was faster: nothing was done to the
// sandbox, or in it, and trying again may work.
const CodeChanged = "sandbox_changed"

// notNow is the error for a sandbox in a state in which nothing can be done
// that is about a running or paused one.
func notNow(r Record) error {
	switch r.State {
	case Stopping:
		return fault.Newf(fault.Conflict, "sandbox_stopping", "Sandbox \"%s\" is being stopped", r.ID)
	case Paused:
		return alreadyPaused(r.ID)
	case Running, Pausing, Resuming:
		return fault.Newf(fault.Conflict, CodeChanged, "Sandbox \"%s\" was changed meanwhile; try again", r.ID)
	case Creating, Waiting, Stopped:
	}
	return notRunning(r)
}

func alreadyPaused(id string) error {
	return fault.Newf(fault.Conflict, "sandbox_paused", "Sandbox \"%s\" is paused", id).WithHint("crannog resume " + id)
}

// stopMachine frees what a machine holds beside its state on disk.
func (s *Service) stopMachine(ctx context.Context, r Record) error {
	return errors.Join(s.engine.Remove(ctx, r.ID), s.detach(ctx, r))
}
