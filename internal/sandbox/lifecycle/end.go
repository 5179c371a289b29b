package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// Remove ends a sandbox and keeps its row. For a sandbox that has ended or is paused, it also
// removes the row and all data. A sandbox that is being created is canceled, and concurrent
// removals of the same sandbox all succeed.
func (s *Service) Remove(ctx context.Context, caller sandbox.Principal, ref string) error {
	r, err := s.resolve(ctx, caller, ref)
	if err != nil {
		return err
	}
	if r.State == sandbox.Stopped {
		return s.erase(ctx, r.ID)
	}
	return s.remove(ctx, r)
}

// remove ends a sandbox with the reason killed. For an ephemeral sandbox it also removes the row.
func (s *Service) remove(ctx context.Context, r sandbox.Row) error {
	id := r.ID
	defer s.operations.cancelForRemoval(id)()
	// A removal that has begun is finished even if its caller goes away, because a half-removed
	// sandbox is useless.
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer stop()
	unlock, err := s.operations.locks.acquire(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	current, err := s.store.Get(ctx, id)
	if err != nil {
		return ignoreUnknown(err)
	}
	// A sandbox that existed only on disk has no end that callers could look up afterwards.
	keepRow := !r.Ephemeral && current.State != sandbox.Paused
	if _, err = s.end(ctx, id, sandbox.ReasonKilled, time.Time{}); err != nil || keepRow {
		return err
	}
	return s.erase(ctx, id)
}

// Forget ends a sandbox, if it runs, and removes its row.
func (s *Service) Forget(ctx context.Context, caller sandbox.Principal, ref string) error {
	r, err := s.resolve(ctx, caller, ref)
	if err != nil {
		return err
	}
	if err := s.remove(ctx, r); err != nil {
		return err
	}
	return s.erase(ctx, r.ID)
}

// end takes a sandbox from any live state to stopped, and reports whether this call began the end.
// The lock of the ID must be held. A zero time means that the instance still runs and is stopped
// here.
func (s *Service) end(ctx context.Context, id, reason string, at time.Time) (bool, error) {
	r, err := s.store.Get(ctx, id)
	if err != nil && !isUnknown(err) {
		return false, err
	}
	if err == nil {
		// This is checked before the row is changed: without its engine the instance could not be
		// ended.
		if err := s.engines.checkServed(r); err != nil {
			return false, err
		}
	}
	started, err := s.beginStop(ctx, id, sandbox.Move{
		From: []sandbox.State{sandbox.Creating, sandbox.Running, sandbox.Pausing, sandbox.Paused, sandbox.Resuming}, To: sandbox.Stopping, Reason: reason,
	})
	if err != nil {
		return false, err
	}
	return started, s.finish(ctx, id, at)
}

// endRun is end for an instance that has stopped by itself. It does nothing if the sandbox has
// another instance by now, or is being paused.
func (s *Service) endRun(ctx context.Context, id string, run int64, reason string, at time.Time) error {
	started, err := s.beginStop(ctx, id, sandbox.Move{From: []sandbox.State{sandbox.Running}, To: sandbox.Stopping, Reason: reason, Run: run})
	if err != nil {
		return err
	}
	if !started {
		return s.refresh(ctx, id)
	}
	return s.finish(ctx, id, at)
}

// beginStop records that a sandbox is being ended. If the disk is full, perhaps because of this
// very sandbox, the instance ends first, which frees its space. If the row still cannot be written,
// it keeps naming an instance that does not exist, and the next reconciliation ends the sandbox
// again.
func (s *Service) beginStop(ctx context.Context, id string, m sandbox.Move) (bool, error) {
	started, err := s.store.Move(ctx, id, m)
	if fault.KindOf(err) != fault.Exhausted {
		return started, err
	}
	s.log.Warn("the disk is full: ending a sandbox before its row can be written", "sandbox", id, "err", err)
	if row, getErr := s.store.Get(ctx, id); getErr == nil && row.State == sandbox.Paused {
		return false, err // nothing of it runs
	}
	s.intake.Retain(id)
	s.untrack(id)
	if err := s.removeInstance(ctx, id); err != nil {
		return false, fmt.Errorf("remove %s: %w", id, err)
	}
	return s.store.Move(ctx, id, m)
}

// finish frees the resources of a sandbox whose row is in the state stopping, or missing. The lock
// of the ID must be held.
func (s *Service) finish(ctx context.Context, id string, at time.Time) error {
	s.intake.Retain(id)
	// Streams are closed before the sandbox ends, so that clients see an abrupt end rather than a
	// clean one that looks like success.
	s.untrack(id)
	s.intake.Survey(ctx, id)
	if err := s.removeInstance(ctx, id); err != nil {
		return fmt.Errorf("remove %s: %w", id, err)
	}
	row, err := s.store.Get(ctx, id)
	if err != nil && !isUnknown(err) {
		return err
	}
	if err := s.access.Detach(ctx, id); err != nil {
		return err
	}
	// This happens while the secrets of the sandbox are still known.
	complete, err := s.intake.End(ctx, row)
	if err != nil {
		return err
	}
	if err := s.data.workspaces.DropCopy(ctx, row); err != nil {
		return err
	}
	if err := s.data.workspaces.Forget(id); err != nil {
		return err
	}
	if err := s.states.Remove(ctx, row.Saved.Image); err != nil {
		return err
	}
	if err := s.access.DropValues(ctx, id, ""); err != nil {
		return err
	}
	if at.IsZero() {
		at = time.Now()
	}
	if row.State == sandbox.Stopping {
		if err := s.recordEnd(ctx, row, at); err != nil {
			return err
		}
	}
	stopped, err := s.store.Move(ctx, id, sandbox.Move{From: []sandbox.State{sandbox.Stopping}, To: sandbox.Stopped, At: at})
	if err != nil || !stopped {
		return err
	}
	if complete {
		if err := s.intake.RemoveEvents(id); err != nil {
			s.log.Warn("events of a sandbox not removed", "sandbox", id, "err", err)
		}
	}
	s.access.Retire(ctx, id, "", "the sandbox has ended")
	s.data.recordings.Close(id)
	r, err := s.store.Get(ctx, id)
	if err != nil {
		return ignoreUnknown(err) // another process has removed the row
	}
	s.log.InfoContext(ctx, "sandbox stopped", "sandbox", id, "owner", r.Owner, "reason", r.Reason)
	s.note(ctx, id, "info", "sandbox stopped", map[string]string{"reason": r.Reason})
	return nil
}

// note adds a line to a sandbox's log. A failure is only reported in the server's log, because the
// sandbox's log is a convenience.
func (s *Service) note(ctx context.Context, id, level, message string, fields map[string]string) {
	e := sandbox.LogEntry{At: time.Now().UTC().Round(0), Level: level, Message: message, Fields: fields}
	if err := s.store.Append(context.WithoutCancel(ctx), id, e); err != nil {
		s.log.Warn("sandbox log not written", "sandbox", id, "err", err)
	}
}
