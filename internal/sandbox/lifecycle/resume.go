package lifecycle

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
	"github.com/crannog/crannog/internal/sandbox/savedstate"
	"github.com/crannog/crannog/internal/sandbox/steps"
	"github.com/crannog/crannog/internal/telemetry"
)

// minResumeLifetime is the shortest time for which traffic resumes a sandbox.
const minResumeLifetime = 5 * time.Minute

// Resume resumes a paused sandbox for d.
func (s *Service) Resume(ctx context.Context, caller sandbox.Principal, ref string, d time.Duration) (sandbox.Sandbox, bool, error) {
	return s.resume(ctx, caller, ref, d, false)
}

// ResumeFiles boots a paused sandbox again from its files, without its memory.
func (s *Service) ResumeFiles(ctx context.Context, caller sandbox.Principal, ref string, d time.Duration) (sandbox.Sandbox, bool, error) {
	return s.resume(ctx, caller, ref, d, true)
}

func (s *Service) resume(ctx context.Context, caller sandbox.Principal, ref string, d time.Duration, filesOnly bool) (sandbox.Sandbox, bool, error) {
	if d < 0 {
		return sandbox.Sandbox{}, false, fault.New(fault.Invalid, "timeout_invalid", "Timeout must not be negative")
	}
	if err := s.planner.checkTimeout(caller, d); err != nil {
		return sandbox.Sandbox{}, false, err
	}
	if err := s.starts.room.Check(); err != nil {
		return sandbox.Sandbox{}, false, err
	}
	r, err := s.resolve(ctx, caller, ref)
	if err != nil {
		return sandbox.Sandbox{}, false, err
	}
	return s.resumeOrExtend(ctx, r.ID, d, filesOnly, func(sandbox.Row) error { return nil })
}

// Wake resumes a paused sandbox that is configured to resume on traffic.
func (s *Service) Wake(ctx context.Context, id string) (sandbox.Sandbox, error) {
	if !idPattern.MatchString(id) {
		return sandbox.Sandbox{}, sandbox.Unknown(id)
	}
	if sb, ok := s.live.get(id); ok {
		return sb, nil
	}
	r, err := s.store.Get(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	d := max(r.CreateTimeout, minResumeLifetime)
	if r.CreateTimeout == 0 {
		d = 0 // without end
	}
	sb, _, err := s.resumeOrExtend(ctx, id, d, false, func(r sandbox.Row) error {
		if r.State == sandbox.Paused && r.OnEnd.Wake {
			return nil
		}
		return sandbox.Unknown(id)
	})
	return sb, err
}

// resumeOrExtend resumes a sandbox, or extends a running one, and reports whether it was paused.
// allowed can refuse to resume the sandbox.
func (s *Service) resumeOrExtend(ctx context.Context, id string, d time.Duration, filesOnly bool, allowed func(sandbox.Row) error) (sandbox.Sandbox, bool, error) {
	started := time.Now()
	ctx, r, release, err := s.lockForChangeOf(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, false, err
	}
	defer release()
	if r.State == sandbox.Running {
		r, err = s.extendEnd(ctx, r, d)
		return r.Shown(), false, err
	}
	if err := allowed(r); err != nil {
		return sandbox.Sandbox{}, false, err
	}
	if r.State != sandbox.Paused {
		return sandbox.Sandbox{}, false, stateConflict(r)
	}
	from := source{Source: savedstate.Source{Saved: r.Saved, Files: filesOnly}, renew: guest.Resumed, again: true}
	if filesOnly {
		// This failure does not concern callers who want the memory restored.
		r, err = s.restore(ctx, r, r.EndIn(d), from, nil)
		return r.Shown(), true, err
	}
	// A request that waited for another's attempt shares its outcome, so that a failing resumption
	// is not repeated for each waiting request.
	if err := s.operations.failedSince(id, started); err != nil {
		return sandbox.Sandbox{}, true, err
	}
	r, err = s.restore(ctx, r, r.EndIn(d), from, nil)
	s.operations.recordResume(id, err)
	return r.Shown(), true, err
}

// extendEnd gives a running sandbox a later end, if the new end is later.
func (s *Service) extendEnd(ctx context.Context, r sandbox.Row, d time.Duration) (sandbox.Row, error) {
	if end := r.EndIn(d); !end.IsZero() {
		changed, err := s.store.SetEnd(ctx, r.ID, end, true)
		if err != nil {
			return sandbox.Row{}, err
		}
		if changed {
			r.EndAt = end
			s.deadlines.set(r)
			s.deadlines.notify(ctx, r)
		}
	}
	s.track(r)
	return r, nil
}

// slowStart is how long a resumption may take without postponing the sandbox's end.
const slowStart = time.Second

// restore resumes a paused sandbox, from its own image or from another source. After an error the
// sandbox is paused as before. The caller must have registered an operation on the sandbox.
func (s *Service) restore(ctx context.Context, r sandbox.Row, end time.Time, from source, at *string) (_ sandbox.Row, err error) {
	ctx, span := telemetry.Start(ctx, "restore")
	defer func() { telemetry.End(span, err) }()
	started := time.Now()
	programsChanged := false    // programs of the host have changed since the pause
	if from.Saved.Image != "" { // without a saved image there is no memory to check
		err := s.states.CheckFits(ctx, r.Engine, r.TemplateID, r.Base, from.Saved)
		// Nothing runs while files are extracted.
		if programsChanged = from.Files && fault.CodeOf(err) == savedstate.CodePrograms; err != nil && !programsChanged {
			return sandbox.Row{}, err
		}
	}
	releaseTurn, err := s.starts.admit(ctx, r, from.request, false)
	if err != nil {
		return sandbox.Row{}, err
	}
	defer func() { releaseTurn(err) }()
	moved := false
	before := []steps.Step{
		{Name: stepResuming, Do: func(ctx context.Context) (err error) {
			moved, err = s.move(ctx, r.ID, sandbox.Move{
				From: []sandbox.State{sandbox.Paused}, To: sandbox.Resuming, By: s.process.self, Run: r.Run, Next: true, MaxLive: s.settings.MaxLive,
			})
			if err != nil || !moved {
				return errors.Join(err, s.staleReason(ctx, r.ID, moved, err))
			}
			r.Run, r.EndAt, r.PausedAt = r.Run+1, end, time.Time{}
			return nil
		}, Undo: func(ctx context.Context) error {
			if !moved {
				return nil
			}
			// The image is unchanged.
			_, err := s.move(ctx, r.ID, sandbox.Move{From: []sandbox.State{sandbox.Resuming}, To: sandbox.Paused})
			return err
		}},
		{Name: stepOld, Do: func(ctx context.Context) error { return s.stopInstance(ctx, r) }},
	}
	after := steps.Step{Name: stepEntry, Do: func(ctx context.Context) error {
		if took := time.Since(started); took > slowStart && !end.IsZero() {
			r.EndAt = end.Add(took) // a caller that resumes it for some time gets that time in full
		}
		// No output has reached a client yet, so the start can be undone.
		return s.audit.Append(ctx, s.resumedEntry(ctx, r, at, from))
	}}
	if err = steps.Run(ctx, undoTimeout, slices.Concat(before, s.bootAgain(&r, from), []steps.Step{after})...); err != nil {
		if programsChanged && fault.KindOf(err) == fault.Internal {
			err = fault.Wrap(err, fault.Conflict, savedstate.CodePrograms, "the files cannot be extracted: programs of the host that the sandbox had open have changed since, and one of them is missing").
				WithHint("put the same packages back, and try again; the server's log names the file")
		}
		return sandbox.Row{}, s.resumeFailure(ctx, r.ID, err)
	}
	ctx, cancel := withoutCaller(ctx)
	defer cancel()
	image, memoryRestored := r.Saved.Image, !from.Files && !r.Saved.FilesOnly
	r.Saved = sandbox.Saved{}
	moved, err = s.move(ctx, r.ID, sandbox.Move{From: []sandbox.State{sandbox.Resuming}, To: sandbox.Running, Change: &sandbox.Change{
		Saved: &r.Saved, PausedAt: &r.PausedAt, EndAt: &r.EndAt, At: at, Checked: r.Checked, Base: &r.Base,
	}})
	if err != nil {
		return sandbox.Row{}, errors.Join(err, s.stopInstance(ctx, r)) // the maintenance loop continues
	}
	if !moved {
		s.untrack(r.ID)
		return sandbox.Row{}, errors.Join(removedDuringRequest(), s.stopInstance(ctx, r))
	}
	r.State = sandbox.Running
	if at != nil {
		r.At = *at
	}
	s.track(r)
	if !r.EndAt.Equal(end) {
		s.deadlines.notify(ctx, r)
	}
	if err := s.states.Remove(ctx, image); err != nil {
		s.log.Warn("image of a resumed sandbox not removed", "sandbox", r.ID, "err", err)
	}
	s.log.InfoContext(ctx, "sandbox resumed", "sandbox", r.ID, "owner", r.Owner, "took", time.Since(started))
	message, kind := "sandbox resumed", "memory"
	if !memoryRestored {
		kind = "files"
		message = "sandbox booted again with its files"
	}
	countStart(ctx, s.startTimes, r, kind, started)
	s.note(ctx, r.ID, "info", message, map[string]string{"took": time.Since(started).Round(time.Millisecond).String()})
	return r, nil
}

// resumedEntry returns the audit entry of a sandbox that continues, either from its paused state or
// from a snapshot.
func (s *Service) resumedEntry(ctx context.Context, r sandbox.Row, at *string, from source) audit.Draft {
	if at != nil {
		return auditlog.Entry(ctx, audit.SandboxReplaced, r.ID, payload.Replaced{Run: r.Run, Snapshot: *at})
	}
	return auditlog.Entry(ctx, audit.SandboxResumed, r.ID, payload.Resumed{Run: r.Run, EndAt: formatTime(r.EndAt), FilesOnly: from.Files || from.Saved.FilesOnly})
}
