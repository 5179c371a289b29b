package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
)

// bootTimeout bounds a boot. A box is up in tens of milliseconds; a host on
// which it takes a minute cannot run it.
const bootTimeout = time.Minute

// undoTimeout bounds the cleaning up after a failed or canceled request,
// which must not stop because the caller went away.
const undoTimeout = 30 * time.Second

// Create makes a sandbox and returns when it is ready. After an error nothing
// of it is left.
func (s *Service) Create(ctx context.Context, who sandbox.Principal, req sandbox.CreateRequest) (sandbox.Sandbox, error) {
	began := time.Now()
	if err := s.room.Check(); err != nil {
		return sandbox.Sandbox{}, err
	}
	r, template, compiled, err := s.plan(ctx, who, req)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	spec, config, search, err := rootfs.Compose(&r, template, compiled)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	from, err := s.origin(&r, template, compiled)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	from.request, from.search = req.RequestID, search
	if made, claimed, err := s.claim(ctx, r, template, compiled, spec, config); claimed {
		return made, err
	}
	// A refusal now leaves nothing to undo.
	if err := s.admission.Check(ctx, r.Owner); err != nil {
		return sandbox.Sandbox{}, err
	}
	ctx, done, err := s.begin(ctx, r.ID)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer done()
	// A concurrent removal cancels ctx and then waits for this lock.
	unlock, err := s.locks.acquire(ctx, r.ID)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer unlock()

	if err := s.make(ctx, r, compiled, spec, config, from); err != nil {
		s.log.Warn("sandbox not created", "sandbox", r.ID, "owner", r.Owner, "err", err)
		return sandbox.Sandbox{}, s.undo(ctx, r, err)
	}
	if search != nil {
		r.Base.Keys = search.Found()
	}
	return s.created(ctx, r, began, "engine"), nil
}

// created begins the life of a sandbox that is ready.
func (s *Service) created(ctx context.Context, r sandbox.Row, began time.Time, source string) sandbox.Sandbox {
	r.State, r.Access.Values = sandbox.Running, nil
	s.track(r)
	if r.Ephemeral {
		s.mu.Lock()
		s.held[r.ID] = true
		s.mu.Unlock()
	}
	s.log.Info("sandbox created", "sandbox", r.ID, "owner", r.Owner, "engine", r.Engine, "from", source, "took", time.Since(began))
	s.note(ctx, r.ID, "info", "sandbox created", map[string]string{
		"template": r.Template, "engine": r.Engine, "from": source, "took": time.Since(began).Round(time.Millisecond).String(),
	})
	return r.Shown()
}

// make takes the steps that leave something behind.
func (s *Service) make(ctx context.Context, r sandbox.Row, compiled *policy.Policy, spec engine.Spec, config guest.Config, from source) (err error) {
	// The row comes before the engine, so that a crash between the two leaves
	// something that Reconcile finds.
	if err := s.store.Insert(ctx, r, s.settings.MaxLive); err != nil {
		return err
	}
	// The row comes before the values too, so that they go with it.
	if err := s.access.Seal(ctx, r.ID, r.Access); err != nil {
		return err
	}
	// It waits with a row, so that it counts against the most that may live, and
	// can be listed and removed.
	done, err := s.admit(ctx, r, from.request, false)
	if err != nil {
		return err
	}
	defer func() { done(err) }()
	noted := s.workspaces.Note(ctx, r, from.again || from.saved.FilesOnly)
	from.search.Start()
	err = s.boot(ctx, r, compiled, spec, config, from)
	noted()
	if err != nil {
		return fmt.Errorf("create %s: %w", r.ID, err)
	}
	origin := "engine"
	if from.reading {
		origin = payload.FromReading
	}
	if err := s.started(ctx, r, origin); err != nil {
		return err
	}
	move := sandbox.Move{From: []sandbox.State{sandbox.Creating}, To: sandbox.Running}
	if from.search != nil {
		r.Base.Keys = from.search.Found()
		move.Change = &sandbox.Change{Base: &r.Base}
	}
	moved, err := s.store.Move(ctx, r.ID, move)
	if err != nil {
		return err
	}
	if !moved {
		// Another process removed the row, and with it the right to exist.
		return removedMeanwhile()
	}
	return nil
}

// undo takes the steps of make back, the last one first, and returns what the
// caller is told.
func (s *Service) undo(ctx context.Context, r sandbox.Row, cause error) error {
	id := r.ID
	if because := context.Cause(ctx); because != nil {
		cause = canceled(because)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	s.intake.Retain(id)
	s.cut(id)
	err := errors.Join(s.removeInstance(ctx, id), s.detach(ctx, r))
	if err == nil {
		s.intake.Drain(ctx, id, true)
		err = errors.Join(s.workspaces.DropCopy(ctx, r), s.workspaces.Forget(id), s.access.DropValues(ctx, id, ""))
	}
	if err == nil {
		err = s.erase(ctx, id)
	}
	if err != nil {
		// The row is still there, so the attendant tries again.
		s.log.Error("failed sandbox not cleaned up", "sandbox", id, "err", err)
		if _, err := s.store.Move(ctx, id, sandbox.Move{From: []sandbox.State{sandbox.Creating, sandbox.Running}, To: sandbox.Stopping, Reason: sandbox.ReasonCrashed}); err != nil {
			s.log.Error("failed sandbox not marked", "sandbox", id, "err", err)
		}
	}
	return cause
}

// begin registers a creation or a change of state, so that Remove and Close can
// cancel it.
func (s *Service) begin(ctx context.Context, id string) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		cancel(nil)
		return nil, nil, shuttingDown()
	}
	if s.removing[id] > 0 {
		cancel(nil)
		return nil, nil, removedMeanwhile()
	}
	s.requests.Add(1)
	s.creating[id] = cancel
	return ctx, func() {
		s.mu.Lock()
		delete(s.creating, id)
		s.mu.Unlock()
		cancel(nil)
		s.pool.Load().rouse()
		s.requests.Done()
	}, nil
}

func removedMeanwhile() error {
	return fault.New(fault.Conflict, sandbox.CodeRemoved, "the sandbox was removed while the request ran")
}

// canceled classifies why a context ended.
func canceled(cause error) error { return sandbox.Canceled(cause) }
