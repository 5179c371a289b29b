package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
	"github.com/crannog/crannog/internal/sandbox/savedstate"
)

// commitTimeout bounds how long it may take to make a saved state durable.
const commitTimeout = 10 * time.Minute

// Pause saves a running sandbox and ends its processes.
func (s *Service) Pause(ctx context.Context, caller sandbox.Principal, ref string, filesOnly bool) (sandbox.Sandbox, error) {
	ctx, r, release, err := s.lockForChange(ctx, caller, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer release()
	r, err = s.pause(ctx, r, filesOnly, time.Time{})
	return r.Shown(), err
}

// pause pauses a running sandbox. If due is not zero, it does so only if the sandbox's end has come
// by then. After an error the sandbox continues. The caller must have registered an operation on
// the sandbox.
func (s *Service) pause(ctx context.Context, r sandbox.Row, filesOnly bool, due time.Time) (sandbox.Row, error) {
	if r.State != sandbox.Running {
		return sandbox.Row{}, stateConflict(r)
	}
	started := time.Now()
	save, format, err := s.states.Saver(ctx, r, filesOnly)
	if err != nil {
		return sandbox.Row{}, err
	}
	r.Saved = sandbox.Saved{Image: newSnapshotID(), FilesOnly: filesOnly, Format: format}
	draft, err := s.states.Begin(ctx, r.Saved.Image)
	if err != nil {
		return sandbox.Row{}, err
	}
	// The row names the image before the image exists, so that after a crash at any time it has an
	// owner.
	moved, err := s.move(ctx, r.ID, sandbox.Move{
		From: []sandbox.State{sandbox.Running}, To: sandbox.Pausing, By: s.process.self, Run: r.Run, EndedBy: due, MaxPaused: s.settings.MaxPaused,
		Change: &sandbox.Change{Saved: &r.Saved},
	})
	if err != nil || !moved {
		return sandbox.Row{}, errors.Join(err, draft.Abort(), s.staleReason(ctx, r.ID, moved, err))
	}
	// First the streams and the network are closed. The instance keeps running until its image is
	// written and the row names the image. Nothing that it does after the image was taken reaches a
	// peer, so losing that does no harm. A full disk or a crash only makes the pause fail.
	s.intake.Retain(r.ID)
	s.untrack(r.ID)
	s.intake.Survey(ctx, r.ID)
	err = s.setNetworkOpen(ctx, r, false)
	if err == nil {
		r.Saved.Needs, err = s.states.Save(ctx, r, draft, save)
	}
	if err != nil {
		return sandbox.Row{}, s.undoPause(ctx, r, draft, err)
	}
	return s.commitPause(ctx, r, draft, started)
}

// setNetworkOpen closes a sandbox's network, or opens it again as its policy allows.
func (s *Service) setNetworkOpen(ctx context.Context, r sandbox.Row, open bool) error {
	if !s.access.Connects() || !r.Access.Linked() {
		return nil
	}
	access := r.Access
	if !open {
		access = access.Closed()
	}
	p, err := s.access.Compile(access)
	if err != nil {
		return err
	}
	a := sandbox.Attachment{Sandbox: r.ID, Owner: r.Owner, Policy: p}
	if open {
		a = s.attachmentOrNone(ctx, r, p)
	}
	// An attachment whose process has died is closed for good.
	if err := s.access.Update(ctx, a); err != nil && fault.CodeOf(err) != egress.CodeNotAttached {
		return fmt.Errorf("network of %s: %w", r.ID, err)
	}
	return nil
}

// staleReason reads a sandbox's row again and returns the reason why its state could not be
// changed.
func (s *Service) staleReason(ctx context.Context, id string, moved bool, err error) error {
	if err != nil || moved {
		return nil
	}
	r, err := s.store.Get(ctx, id)
	if err != nil {
		return err
	}
	return errors.Join(stateConflict(r), s.refresh(ctx, id))
}

// undoPause makes a sandbox usable again after its pause has failed.
func (s *Service) undoPause(ctx context.Context, r sandbox.Row, draft sandbox.Draft, cause error) error {
	if canceledBy := context.Cause(ctx); canceledBy != nil {
		cause = errors.Join(canceled(canceledBy), cause)
	}
	ctx, cancel := withoutCaller(ctx)
	defer cancel()
	s.log.Warn("sandbox not paused", "sandbox", r.ID, "err", cause)
	if err := s.setNetworkOpen(ctx, r, true); err != nil {
		// If the row became running with the network closed, the network would stay closed. The
		// maintenance loop opens it.
		s.operations.markUnwritten(r.ID)
		return errors.Join(cause, err, draft.Abort())
	}
	moved, err := s.move(ctx, r.ID, sandbox.Move{From: []sandbox.State{sandbox.Pausing}, To: sandbox.Running, Change: &sandbox.Change{Saved: &sandbox.Saved{}}})
	if moved {
		r.State, r.Saved = sandbox.Running, sandbox.Saved{}
		s.track(r)
		s.note(ctx, r.ID, "warn", "pause failed: "+fault.PublicText(cause), nil)
	}
	return errors.Join(cause, err, draft.Abort())
}

// commitPause makes the saved state the current state of the sandbox.
func (s *Service) commitPause(ctx context.Context, r sandbox.Row, draft sandbox.Draft, started time.Time) (sandbox.Row, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	image, err := draft.Commit(ctx, r.At)
	if err != nil {
		return sandbox.Row{}, s.undoPause(ctx, r, draft, savedstate.DiskFull(err))
	}
	r.Saved.Sum, r.PausedAt = image.Sum, time.Now().UTC().Round(0)
	s.audit.AppendAnyway(ctx, auditlog.Entry(ctx, audit.SandboxPaused, r.ID, payload.Paused{FilesOnly: r.Saved.FilesOnly, Sum: image.Sum, Bytes: image.Bytes}))
	moved, err := s.move(ctx, r.ID, sandbox.Move{
		From: []sandbox.State{sandbox.Pausing}, To: sandbox.Paused, Change: &sandbox.Change{Saved: &r.Saved, PausedAt: &r.PausedAt},
	})
	if err != nil {
		return sandbox.Row{}, err // the maintenance loop takes care of it
	}
	if !moved {
		return sandbox.Row{}, errors.Join(removedDuringRequest(), s.states.Remove(ctx, r.Saved.Image))
	}
	r.State = sandbox.Paused
	if err := s.stopInstance(ctx, r); err != nil {
		s.log.Warn("instance of a paused sandbox not removed", "sandbox", r.ID, "err", err)
	}
	s.intake.Drain(ctx, r.ID, false)
	s.access.Retire(ctx, r.ID, "", "the sandbox is paused")
	s.log.InfoContext(ctx, "sandbox paused", "sandbox", r.ID, "owner", r.Owner, "bytes", image.Bytes, "took", time.Since(started))
	s.note(ctx, r.ID, "info", "sandbox paused", map[string]string{"took": time.Since(started).Round(time.Millisecond).String()})
	s.states.RequestDeduplication()
	return r, nil
}
