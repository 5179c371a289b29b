package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/savedstate"
)

// codeReplaceFailed is the engine's code for a failed replacement after which neither instance
// exists.
const codeReplaceFailed = "replace_failed"

// Rollback returns a sandbox to a snapshot.
func (s *Service) Rollback(ctx context.Context, caller sandbox.Principal, ref, snapshot string) (sandbox.Sandbox, error) {
	n, err := s.planner.snapshots.findNamed(ctx, caller, snapshot)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	return s.rollbackTo(ctx, caller, ref, func(sandbox.Row) string { return n.ID })
}

// Reset returns a sandbox to its initial state.
func (s *Service) Reset(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Sandbox, error) {
	return s.rollbackTo(ctx, caller, ref, func(r sandbox.Row) string {
		if r.Origin != "" {
			return r.Origin
		}
		return sandbox.ToStart
	})
}

func (s *Service) rollbackTo(ctx context.Context, caller sandbox.Principal, ref string, to func(sandbox.Row) string) (sandbox.Sandbox, error) {
	ctx, r, release, err := s.lockForChange(ctx, caller, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer release()
	if r.State != sandbox.Running && r.State != sandbox.Paused {
		return sandbox.Sandbox{}, stateConflict(r)
	}
	if err := r.Base.CheckRebuildable(); err != nil {
		return sandbox.Sandbox{}, err
	}
	// This precedes every interruption of the sandbox.
	if err := savedstate.CanReplace(s.engines.Registry, r.Engine); err != nil {
		return sandbox.Sandbox{}, err
	}
	if _, err := s.planner.compileFor(r, r.Access); err != nil {
		return sandbox.Sandbox{}, err
	}
	target := to(r)
	from, at, err := s.rollbackSource(ctx, r, target)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	if from.Saved.Image != "" {
		if err := s.states.CheckFits(ctx, r.Engine, r.TemplateID, r.Base, from.Saved); err != nil {
			return sandbox.Sandbox{}, err
		}
	}
	if r.State == sandbox.Paused {
		r, err = s.restore(ctx, r, r.EndIn(0), from, &at)
	} else {
		r, err = s.replace(ctx, r, target, from, at)
	}
	return r.Shown(), err
}

// rollbackSource returns the source for a rollback: ToStart or a snapshot, which must be of the
// same kind.
func (s *Service) rollbackSource(ctx context.Context, r sandbox.Row, target string) (source, string, error) {
	if target == sandbox.ToStart {
		return source{again: true}, "", nil
	}
	n, err := s.store.GetSnapshot(ctx, target)
	if err == nil && n.Sum == "" {
		err = sandbox.SnapshotUnknown(target)
	}
	if isUnknown(err) && target == r.Origin {
		return source{}, "", fault.New(fault.Conflict, "origin_gone", "the snapshot from which the sandbox was created does not exist any more").
			WithHint("roll it back to another snapshot, or create a new sandbox")
	}
	if err != nil {
		return source{}, "", err
	}
	renew := guest.RolledBack
	if n.Sandbox != r.ID {
		// The snapshot contains names of another sandbox, which may be running under them.
		renew = guest.Copied
	}
	return fromSnapshot(n, renew), n.ID, n.CheckFits(r)
}

// replace replaces the instance of a running sandbox. The caller holds the sandbox's lock.
func (s *Service) replace(ctx context.Context, r sandbox.Row, target string, from source, at string) (_ sandbox.Row, err error) {
	releaseTurn, err := s.starts.admit(ctx, r, from.request, false)
	if err != nil {
		return sandbox.Row{}, err
	}
	defer func() { releaseTurn(err) }()
	old := r
	moved, err := s.move(ctx, r.ID, sandbox.Move{
		From: []sandbox.State{sandbox.Running}, To: sandbox.Resuming, By: s.process.self, Run: r.Run, Next: true, Change: &sandbox.Change{Pending: &target},
	})
	if err != nil || !moved {
		return sandbox.Row{}, errors.Join(err, s.staleReason(ctx, r.ID, moved, err))
	}
	r.Run++
	from.replace = true
	s.intake.Survey(ctx, r.ID)
	s.untrack(r.ID)
	if err := s.restart(ctx, &r, from); err != nil {
		return sandbox.Row{}, s.undoReplace(ctx, old, err)
	}
	return s.commitReplace(ctx, r, at)
}

// commitReplace makes the new instance the sandbox's instance.
func (s *Service) commitReplace(ctx context.Context, r sandbox.Row, at string) (sandbox.Row, error) {
	ctx, cancel := withoutCaller(ctx)
	defer cancel()
	none := ""
	s.audit.AppendAnyway(ctx, s.resumedEntry(ctx, r, &at, source{}))
	moved, err := s.move(ctx, r.ID, sandbox.Move{From: []sandbox.State{sandbox.Resuming}, To: sandbox.Running, Change: &sandbox.Change{
		Pending: &none, At: &at, Checked: r.Checked, Base: &r.Base,
	}})
	if err != nil {
		return sandbox.Row{}, err // the maintenance loop continues
	}
	if !moved {
		s.untrack(r.ID)
		return sandbox.Row{}, errors.Join(removedDuringRequest(), s.stopInstance(ctx, r))
	}
	r.State, r.At, r.Pending = sandbox.Running, at, ""
	s.track(r)
	s.access.Retire(ctx, r.ID, "", "the sandbox was rolled back")
	s.log.InfoContext(ctx, "sandbox rolled back", "sandbox", r.ID, "owner", r.Owner, "snapshot", at)
	s.note(ctx, r.ID, "info", "sandbox rolled back", map[string]string{"snapshot": at})
	return r, nil
}

// undoReplace translates the error of a failed replacement, depending on whether the old instance
// still runs.
func (s *Service) undoReplace(ctx context.Context, r sandbox.Row, cause error) error {
	if canceledBy := context.Cause(ctx); canceledBy != nil {
		cause = errors.Join(canceled(canceledBy), cause)
	}
	ctx, cancel := withoutCaller(ctx)
	defer cancel()
	s.log.Warn("sandbox not rolled back", "sandbox", r.ID, "err", cause)
	running, err := s.isRunning(ctx, r.ID)
	if err != nil {
		s.operations.markUnwritten(r.ID)
		return errors.Join(cause, err)
	}
	if !running || isReplaceFailed(cause) {
		_, err := s.end(ctx, r.ID, sandbox.ReasonCrashed, time.Time{})
		return errors.Join(fault.Wrap(cause, fault.KindOf(cause), codeReplaceFailed,
			"the sandbox could not be rolled back, and is stopped: "+fault.PublicText(cause)).WithHint("its snapshots are unchanged"), err)
	}
	none := ""
	moved, err := s.move(ctx, r.ID, sandbox.Move{From: []sandbox.State{sandbox.Resuming}, To: sandbox.Running, Next: true, Change: &sandbox.Change{Pending: &none}})
	if err != nil || !moved {
		return errors.Join(cause, err)
	}
	// The old instance continues. Its network attachment may have been closed for the new one.
	if row, err := s.store.Get(ctx, r.ID); err == nil {
		s.track(row)
	}
	if err := s.reconnect(ctx); err != nil {
		s.log.Warn("network attachment not checked", "sandbox", r.ID, "err", err)
	}
	s.note(ctx, r.ID, "warn", "not rolled back: "+fault.PublicText(cause), nil)
	return cause
}

func isReplaceFailed(err error) bool { return fault.CodeOf(err) == codeReplaceFailed }
