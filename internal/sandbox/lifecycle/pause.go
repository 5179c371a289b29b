package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

// saveTimeout bounds how long it may take to write a sandbox down.
const saveTimeout = 10 * time.Minute

// Pause writes a running sandbox down and ends its processes.
func (s *Service) Pause(ctx context.Context, who sandbox.Principal, ref string, filesOnly bool) (sandbox.Sandbox, error) {
	ctx, r, release, err := s.act(ctx, who, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer release()
	r, err = s.pause(ctx, r, filesOnly, time.Time{})
	return r.Shown(), err
}

// pause takes a running sandbox to paused: if due is not zero, only one whose
// end has come by then. After an error it runs on. The caller acts on it.
func (s *Service) pause(ctx context.Context, r sandbox.Row, filesOnly bool, due time.Time) (sandbox.Row, error) {
	if r.State != sandbox.Running {
		return sandbox.Row{}, notNow(r)
	}
	began := time.Now()
	save, format, err := s.saver(ctx, r, filesOnly)
	if err != nil {
		return sandbox.Row{}, err
	}
	r.Saved = sandbox.Saved{Image: newSnapshotID(), FilesOnly: filesOnly, Format: format}
	draft, err := s.beginImage(ctx, r.Saved.Image)
	if err != nil {
		return sandbox.Row{}, err
	}
	// The row names the image before there is one, so that a crash at any
	// time leaves it with somebody.
	moved, err := s.move(ctx, r.ID, sandbox.Move{
		From: []sandbox.State{sandbox.Running}, To: sandbox.Pausing, By: s.self, Run: r.Run, EndedBy: due, MaxPaused: s.settings.MaxPaused,
		Change: &sandbox.Change{Saved: &r.Saved},
	})
	if err != nil || !moved {
		return sandbox.Row{}, errors.Join(err, draft.Abort(), s.stale(ctx, r.ID, moved, err))
	}
	// Streams are cut and the egress gateway is shut first. The instance keeps
	// running until its image is written and the row says so. What it does after the
	// image was taken reaches no peer, so that losing it does no harm. A full disk or
	// a crash on the way costs only the pause.
	s.intake.Retain(r.ID)
	s.cut(r.ID)
	s.intake.Survey(ctx, r.ID)
	err = s.gate(ctx, r, false)
	if err == nil {
		r.Saved.Needs, err = s.writeDown(ctx, r, draft, save)
	}
	if err != nil {
		return sandbox.Row{}, s.runOn(ctx, r, draft, err)
	}
	return s.commitPause(ctx, r, draft, began)
}

// gate shuts a sandbox's way out, or opens it again to what its policy says.
func (s *Service) gate(ctx context.Context, r sandbox.Row, open bool) error {
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
	// A link whose process has died is shut, and for good.
	if err := s.access.Update(ctx, a); err != nil && fault.CodeOf(err) != egress.CodeNotAttached {
		return fmt.Errorf("way out of %s: %w", r.ID, err)
	}
	return nil
}

// stale says why a sandbox did not move, having read its row again.
func (s *Service) stale(ctx context.Context, id string, moved bool, err error) error {
	if err != nil || moved {
		return nil
	}
	r, err := s.store.Get(ctx, id)
	if err != nil {
		return err
	}
	return errors.Join(notNow(r), s.refresh(ctx, id))
}

// saver writes a sandbox into a directory, and returns what it refers to.
type saver func(ctx context.Context, dir string) (*sandbox.Needs, error)

// saver finds how the engine writes a sandbox down, and in which format.
func (s *Service) saver(ctx context.Context, r sandbox.Row, filesOnly bool) (saver, string, error) {
	if s.images == nil {
		return nil, "", noImages()
	}
	if err := r.Base.CheckRebuildable(); err != nil {
		return nil, "", err
	}
	if !filesOnly {
		c, err := s.engines.checkpointer(r.Engine)
		if err != nil {
			return nil, "", err
		}
		if _, tells := c.(engine.Binder); !tells {
			// What could never go on is refused before anything is done.
			if err := s.fits(ctx, r.Engine, r.TemplateID, r.Base, sandbox.Saved{Format: c.Format()}); err != nil {
				return nil, "", err
			}
		}
		return func(ctx context.Context, dir string) (*sandbox.Needs, error) { return s.savedMemory(ctx, r, c, dir) }, c.Format(), nil
	}
	a, err := s.engines.archiver(r.Engine)
	if err != nil {
		return nil, "", err
	}
	return func(ctx context.Context, dir string) (_ *sandbox.Needs, err error) {
		f, err := os.OpenFile(filepath.Join(dir, archiveName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		return nil, a.Archive(ctx, r.ID, f)
	}, "", nil
}

// writeDown has a sandbox written into a draft.
func (s *Service) writeDown(ctx context.Context, r sandbox.Row, draft sandbox.Draft, save saver) (*sandbox.Needs, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, saveTimeout,
		fault.Newf(fault.Timeout, "save_timeout", "the sandbox was not written down within %s", saveTimeout))
	defer cancel()
	needs, err := save(ctx, draft.Dir())
	if err != nil {
		if late := context.Cause(ctx); late != nil {
			err = errors.Join(canceled(late), err)
		}
		return nil, fmt.Errorf("save %s: %w", r.ID, full(err))
	}
	s.pool.Load().Saved(r)
	return needs, nil
}

// full names the one cause of a failed save that a caller can do something
// about.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fault.Wrap(err, fault.Exhausted, "snapshot_disk_full", "the disk of the state directory is full").
			WithHint("make room: crannog snapshot ls, crannog prune")
	}
	return err
}

// runOn gives a sandbox back to its callers whose pause has failed.
func (s *Service) runOn(ctx context.Context, r sandbox.Row, draft sandbox.Draft, cause error) error {
	if because := context.Cause(ctx); because != nil {
		cause = errors.Join(canceled(because), cause)
	}
	ctx, cancel := lasting(ctx)
	defer cancel()
	s.log.Warn("sandbox not paused", "sandbox", r.ID, "err", cause)
	if err := s.gate(ctx, r, true); err != nil {
		// Running with its way out shut it would stay so: the attendant opens it.
		return errors.Join(cause, err, s.owe(r.ID), draft.Abort())
	}
	moved, err := s.move(ctx, r.ID, sandbox.Move{From: []sandbox.State{sandbox.Pausing}, To: sandbox.Running, Change: &sandbox.Change{Saved: &sandbox.Saved{}}})
	if moved {
		r.State, r.Saved = sandbox.Running, sandbox.Saved{}
		s.track(r)
		s.note(ctx, r.ID, "warn", "pause failed: "+fault.PublicText(cause), nil)
	}
	return errors.Join(cause, err, draft.Abort())
}

// commitPause makes what was written the sandbox.
func (s *Service) commitPause(ctx context.Context, r sandbox.Row, draft sandbox.Draft, began time.Time) (sandbox.Row, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	image, err := draft.Commit(ctx, r.At)
	if err != nil {
		return sandbox.Row{}, s.runOn(ctx, r, draft, full(err))
	}
	r.Saved.Sum, r.PausedAt = image.Sum, time.Now().UTC().Round(0)
	s.audit.AppendAnyway(ctx, auditlog.Entry(ctx, audit.SandboxPaused, r.ID, payload.Paused{FilesOnly: r.Saved.FilesOnly, Sum: image.Sum, Bytes: image.Bytes}))
	moved, err := s.move(ctx, r.ID, sandbox.Move{
		From: []sandbox.State{sandbox.Pausing}, To: sandbox.Paused, Change: &sandbox.Change{Saved: &r.Saved, PausedAt: &r.PausedAt},
	})
	if err != nil {
		return sandbox.Row{}, err // the attendant looks after it
	}
	if !moved {
		return sandbox.Row{}, errors.Join(removedMeanwhile(), s.images.Remove(ctx, r.Saved.Image))
	}
	r.State = sandbox.Paused
	if err := s.stopMachine(ctx, r); err != nil {
		s.log.Warn("machine of a paused sandbox not removed", "sandbox", r.ID, "err", err)
	}
	s.intake.Drain(ctx, r.ID, false)
	s.access.Retire(ctx, r.ID, "", "the sandbox is paused")
	s.log.Info("sandbox paused", "sandbox", r.ID, "owner", r.Owner, "bytes", image.Bytes, "took", time.Since(began))
	s.note(ctx, r.ID, "info", "sandbox paused", map[string]string{"took": time.Since(began).Round(time.Millisecond).String()})
	s.settleImages()
	return r, nil
}
