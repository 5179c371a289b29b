package lifecycle

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

// repair takes a sandbox out of a transitional state whose process has died. The lock of the ID
// must be held.
func (s *Service) repair(ctx context.Context, id string) error {
	r, err := s.store.Get(ctx, id)
	if err != nil || !s.operations.isStranded(s.process, r) {
		return ignoreUnknown(err)
	}
	// If several processes find the sandbox, one of them continues.
	taken, err := s.store.Move(ctx, id, sandbox.Move{From: []sandbox.State{r.State}, To: r.State, By: s.process.self, WasBy: r.Actor, Run: r.Run})
	if err != nil || !taken {
		return err
	}
	s.log.Warn("sandbox found in a transitional state", "sandbox", id, "state", r.State)
	switch {
	case r.State == sandbox.Pausing:
		err = s.repairPause(ctx, r)
	case r.Saved.Image != "":
		// The image is unchanged, because nothing ran after it was saved.
		s.untrack(id)
		if err = s.stopInstance(ctx, r); err == nil {
			s.audit.AppendAnyway(ctx, auditlog.Entry(ctx, audit.SandboxPaused, id, payload.Paused{Sum: r.Saved.Sum, FilesOnly: r.Saved.FilesOnly, Reason: "mended"}))
			_, err = s.move(ctx, id, sandbox.Move{From: []sandbox.State{sandbox.Resuming}, To: sandbox.Paused})
		}
	default:
		err = s.repairReplace(ctx, r)
	}
	if err != nil {
		s.operations.markUnwritten(id) // this process has to finish it now
	}
	return err
}

// repairPause undoes an interrupted pause. The instance still runs, because a pause ends it only
// after the row names the saved state. Without an instance the sandbox is lost, and a partial image
// is left to garbage collection.
func (s *Service) repairPause(ctx context.Context, r sandbox.Row) error {
	running, err := s.isRunning(ctx, r.ID)
	if err != nil {
		return err
	}
	if !running {
		_, err = s.end(ctx, r.ID, sandbox.ReasonLost, time.Time{})
		return err
	}
	ctx, done, err := s.operations.beginOnce(ctx, r.ID)
	if err != nil {
		return err
	}
	defer done()
	if err := s.setNetworkOpen(ctx, r, true); err != nil {
		return err
	}
	moved, err := s.move(ctx, r.ID, sandbox.Move{From: []sandbox.State{sandbox.Pausing}, To: sandbox.Running, Change: &sandbox.Change{Saved: &sandbox.Saved{}}})
	if err != nil || !moved {
		return err
	}
	s.audit.AppendAnyway(ctx, auditlog.Entry(ctx, audit.SandboxResumed, r.ID, payload.Resumed{Run: r.Run, EndAt: formatTime(r.EndAt), Reason: "mended"}))
	r.State, r.Saved = sandbox.Running, sandbox.Saved{}
	s.track(r)
	return nil
}

// isRunning asks the engine whether a sandbox's instance runs.
func (s *Service) isRunning(ctx context.Context, id string) (bool, error) {
	r, err := s.store.Get(ctx, id)
	if err != nil {
		return false, err
	}
	e, err := s.engines.Of(r.Engine)
	if err != nil {
		return false, err
	}
	list, err := e.List(ctx)
	return slices.ContainsFunc(list, func(st engine.Status) bool { return st.ID == id && st.State == engine.Running }), err
}

// repairReplace repeats an interrupted replacement of an instance. It cannot know which instance
// exists, if any.
func (s *Service) repairReplace(ctx context.Context, r sandbox.Row) (err error) {
	s.untrack(r.ID)
	ctx, done, err := s.operations.beginOnce(ctx, r.ID)
	if err != nil {
		return err
	}
	defer done()
	releaseTurn, err := s.starts.admit(ctx, r, "", true)
	if err != nil {
		return err
	}
	defer func() { releaseTurn(err) }()
	from, at, err := s.rollbackSource(ctx, r, r.Pending)
	if err == nil {
		err = s.stopInstance(ctx, r)
	}
	if err == nil {
		err = s.restart(ctx, &r, from)
	}
	if err == nil {
		_, err = s.commitReplace(ctx, r, at)
		return err
	}
	if ctx.Err() != nil {
		return err // this process ends: another one continues
	}
	s.log.Error("sandbox lost: it could not be rolled back", "sandbox", r.ID, "err", err)
	_, endErr := s.end(ctx, r.ID, sandbox.ReasonCrashed, time.Time{})
	return endErr
}

// repairPaused removes the instance of a paused sandbox that the pause failed to remove. It changes
// the row's state for that time, so that other processes do not resume the sandbox.
func (s *Service) repairPaused(ctx context.Context, id string) error {
	r, err := s.store.Get(ctx, id)
	if err != nil || r.State != sandbox.Paused {
		return ignoreUnknown(err)
	}
	moved, err := s.move(ctx, id, sandbox.Move{From: []sandbox.State{sandbox.Paused}, To: sandbox.Resuming, By: s.process.self, Run: r.Run})
	if err != nil || !moved {
		return err
	}
	return errors.Join(s.stopInstance(ctx, r), s.backToPaused(ctx, id))
}

// repairAllPaused calls repairPaused for each paused sandbox with an instance on an engine, because
// no limit counts the memory of such an instance.
func (s *Service) repairAllPaused(ctx context.Context) error {
	all, err := s.engines.instances(ctx)
	errs := []error{err}
	for inst := range all.instances {
		if _, running := s.live.get(inst.id); running {
			continue
		}
		// Check first without the lock, because a start holds it for long.
		r, err := s.store.Get(ctx, inst.id)
		if err == nil && r.State == sandbox.Paused && r.Engine == inst.engine {
			err = s.operations.locked(ctx, r.ID, s.repairPaused)
		}
		errs = append(errs, ignoreUnknown(err))
	}
	return errors.Join(errs...)
}

func (s *Service) backToPaused(ctx context.Context, id string) error {
	_, err := s.move(ctx, id, sandbox.Move{From: []sandbox.State{sandbox.Resuming}, To: sandbox.Paused})
	return err
}
