package lifecycle

import (
	"context"
	"errors"
	"slices"

	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/steps"
)

// Names of the steps of a creation, in addition to those of its boot.
const (
	stepRow       = "write the row"
	stepValues    = "encrypt its own secret values"
	stepTurn      = "wait for a turn"
	stepWorkspace = "start to write the manifest of the workspace"
	stepManifest  = "wait for the manifest of the workspace"
	stepEntry     = "write the audit entry"
	stepRunning   = "set the row to running"
)

// runCreation creates a sandbox for a creation, a fork, or the reading of a saved state. After an
// error nothing is left, or the row refers to the remains.
func (s *Service) runCreation(ctx context.Context, b *boot) error {
	id := b.row.ID
	waitManifest, releaseTurn := func() {}, func(error) {}
	before := []steps.Step{
		// The row comes before the instance, so that Reconcile finds the instance after a crash
		// between the two.
		{Name: stepRow, Do: func(ctx context.Context) error { return s.store.Insert(ctx, b.row, s.settings.MaxLive) },
			Undo: func(ctx context.Context) error { return s.erase(ctx, id) }},
		// The row comes before the values too, so that they are removed with it.
		{Name: stepValues, Do: func(ctx context.Context) error { return s.access.Seal(ctx, id, b.row.Access) },
			Undo: func(ctx context.Context) error { return s.access.DropValues(ctx, id, "") }},
		// The request waits with a row, so that it counts against the limit of live sandboxes, and
		// can be listed and removed.
		{Name: stepTurn, Do: func(ctx context.Context) error {
			turn, err := s.starts.admit(ctx, b.row, b.from.request, false)
			if err == nil {
				releaseTurn = turn
			}
			return err
		}, Finally: func(err error) { releaseTurn(err) }},
		{Name: stepWorkspace, Do: func(ctx context.Context) error {
			waitManifest = s.data.workspaces.StartManifest(ctx, b.row, b.from.again || b.from.Saved.FilesOnly)
			b.from.search.Start()
			return nil
		}, Undo: func(ctx context.Context) error {
			waitManifest()
			s.intake.Drain(ctx, id, true)
			return errors.Join(s.data.workspaces.DropCopy(ctx, b.row), s.data.workspaces.Forget(id))
		}},
	}
	after := []steps.Step{
		{Name: stepManifest, Do: func(context.Context) error { waitManifest(); return nil }},
		{Name: stepEntry, Do: func(ctx context.Context) error {
			origin := "engine"
			if b.from.reading {
				origin = payload.FromReading
			}
			return s.recordStart(ctx, b.row, origin)
		}},
		{Name: stepRunning, Do: b.setRunning},
	}
	err := steps.Run(ctx, undoTimeout, slices.Concat(before, b.steps(), after)...)
	if err == nil {
		return nil
	}
	s.log.Warn("sandbox not created", "sandbox", id, "owner", b.row.Owner, "err", err)
	if steps.Left(err) {
		b.markCrashed(ctx)
	}
	return sequenceError(ctx, err)
}

// setRunning sets the row of a new sandbox to running.
func (b *boot) setRunning(ctx context.Context) error {
	move := sandbox.Move{From: []sandbox.State{sandbox.Creating}, To: sandbox.Running}
	if b.from.search != nil {
		b.row.Base.Keys = b.from.search.Found()
		move.Change = &sandbox.Change{Base: &b.row.Base}
	}
	moved, err := b.s.store.Move(ctx, b.row.ID, move)
	if err != nil {
		return err
	}
	if !moved {
		// Another process removed the row, so the sandbox must not exist.
		return removedDuringRequest()
	}
	return nil
}

// markCrashed makes the maintenance loop end a sandbox that could not be cleaned up. Its row still
// exists.
func (b *boot) markCrashed(ctx context.Context) {
	ctx, cancel := withoutCaller(ctx)
	defer cancel()
	if _, err := b.s.store.Move(ctx, b.row.ID, sandbox.Move{From: []sandbox.State{sandbox.Creating, sandbox.Running}, To: sandbox.Stopping, Reason: sandbox.ReasonCrashed}); err != nil {
		b.s.log.Error("failed sandbox not marked", "sandbox", b.row.ID, "err", err)
	}
}
