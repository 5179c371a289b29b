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

// mend brings a sandbox out of a passing state whose process has died. The
// lock of the ID must be held.
func (s *Service) mend(ctx context.Context, id string) error {
	r, err := s.store.Get(ctx, id)
	if err != nil || !s.stranded(r) {
		return ignoreUnknown(err)
	}
	// Of several processes that see it, one continues.
	taken, err := s.store.Move(ctx, id, sandbox.Move{From: []sandbox.State{r.State}, To: r.State, By: s.self, WasBy: r.Actor, Run: r.Run})
	if err != nil || !taken {
		return err
	}
	s.log.Warn("sandbox found half way", "sandbox", id, "state", r.State)
	switch {
	case r.State == sandbox.Pausing:
		err = s.mendPause(ctx, r)
	case r.Saved.Image != "":
		// Its image is what it was: nothing has run that was written down.
		s.cut(id)
		if err = s.stopMachine(ctx, r); err == nil {
			s.audit.AppendAnyway(ctx, auditlog.Entry(ctx, audit.SandboxPaused, id, payload.Paused{Sum: r.Saved.Sum, FilesOnly: r.Saved.FilesOnly, Reason: "mended"}))
			_, err = s.move(ctx, id, sandbox.Move{From: []sandbox.State{sandbox.Resuming}, To: sandbox.Paused})
		}
	default:
		err = s.mendReplace(ctx, r)
	}
	if err != nil {
		s.mu.Lock()
		s.unwritten[id] = true // it is this process now that owes it
		s.mu.Unlock()
	}
	return err
}

// mendPause undoes an interrupted pause. The instance still runs, because it is ended
// only after the row says that its state was saved. Without an instance the sandbox
// is lost, and a partial image is left to garbage collection.
func (s *Service) mendPause(ctx context.Context, r sandbox.Row) error {
	runs, err := s.runs(ctx, r.ID)
	if err != nil {
		return err
	}
	if !runs {
		_, err = s.end(ctx, r.ID, sandbox.ReasonLost, time.Time{})
		return err
	}
	ctx, done, err := s.takeUp(ctx, r.ID)
	if err != nil {
		return err
	}
	defer done()
	if err := s.gate(ctx, r, true); err != nil {
		return err
	}
	moved, err := s.move(ctx, r.ID, sandbox.Move{From: []sandbox.State{sandbox.Pausing}, To: sandbox.Running, Change: &sandbox.Change{Saved: &sandbox.Saved{}}})
	if err != nil || !moved {
		return err
	}
	s.audit.AppendAnyway(ctx, auditlog.Entry(ctx, audit.SandboxResumed, r.ID, payload.Resumed{Run: r.Run, EndAt: stamp(r.EndAt), Reason: "mended"}))
	r.State, r.Saved = sandbox.Running, sandbox.Saved{}
	s.track(r)
	return nil
}

// runs asks the engine for one sandbox.
func (s *Service) runs(ctx context.Context, id string) (bool, error) {
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

// mendReplace repeats the replacement that a dead process was carrying out. It cannot
// be known which instance exists, if any.
func (s *Service) mendReplace(ctx context.Context, r sandbox.Row) (err error) {
	s.cut(r.ID)
	ctx, done, err := s.takeUp(ctx, r.ID)
	if err != nil {
		return err
	}
	defer done()
	admitted, err := s.admit(ctx, r, "", true)
	if err != nil {
		return err
	}
	defer func() { admitted(err) }()
	from, at, err := s.backTo(ctx, r, r.Pending)
	if err == nil {
		err = s.stopMachine(ctx, r)
	}
	if err == nil {
		err = s.restart(ctx, &r, from)
	}
	if err == nil {
		_, err = s.replaced(ctx, r, at)
		return err
	}
	if ctx.Err() != nil {
		return err // this process ends: another one continues
	}
	s.log.Error("sandbox lost: it could not be put back", "sandbox", r.ID, "err", err)
	_, lost := s.end(ctx, r.ID, sandbox.ReasonCrashed, time.Time{})
	return lost
}

// takeUp is begin for a caller that may have begun already.
func (s *Service) takeUp(ctx context.Context, id string) (context.Context, func(), error) {
	s.mu.RLock()
	begun := s.creating[id] != nil
	s.mu.RUnlock()
	if begun {
		return ctx, func() {}, nil
	}
	return s.begin(ctx, id)
}

// sweepPaused removes the instance of a paused sandbox that the pause failed to
// remove. The state keeps other processes from resuming the sandbox at the same time.
func (s *Service) sweepPaused(ctx context.Context, id string) error {
	r, err := s.store.Get(ctx, id)
	if err != nil || r.State != sandbox.Paused {
		return ignoreUnknown(err)
	}
	moved, err := s.move(ctx, id, sandbox.Move{From: []sandbox.State{sandbox.Paused}, To: sandbox.Resuming, By: s.self, Run: r.Run})
	if err != nil || !moved {
		return err
	}
	return errors.Join(s.stopMachine(ctx, r), s.backToPaused(ctx, id))
}

// sweepAllPaused is sweepPaused for each sandbox of which the engine still has a
// machine: it uses memory that no limit counts.
func (s *Service) sweepAllPaused(ctx context.Context) error {
	list, err := s.instances(ctx)
	errs := []error{err}
	for _, one := range list {
		if _, runs := s.known(one.id); runs {
			continue
		}
		// Looked at first, since who starts one holds its lock for long.
		r, err := s.store.Get(ctx, one.id)
		if err == nil && r.State == sandbox.Paused && r.Engine == one.engine {
			err = s.locked(ctx, r.ID, s.sweepPaused)
		}
		errs = append(errs, ignoreUnknown(err))
	}
	return errors.Join(errs...)
}

func (s *Service) backToPaused(ctx context.Context, id string) error {
	_, err := s.move(ctx, id, sandbox.Move{From: []sandbox.State{sandbox.Resuming}, To: sandbox.Paused})
	return err
}

// lostImages marks paused sandboxes as lost whose image is gone, and drops
// snapshots without one.
func (s *Service) lostImages(ctx context.Context) error {
	if s.images == nil {
		return nil
	}
	// Rows first: an image is there before the row that needs it, and goes
	// after it, so what is missing is missing if the row is still the same.
	paused, err := s.store.List(ctx, sandbox.Query{AllOwners: true, Filter: sandbox.Filter{States: []sandbox.State{sandbox.Paused}}})
	if err != nil {
		return err
	}
	kept, err := s.store.ListSnapshots(ctx, sandbox.SnapshotQuery{AllOwners: true})
	if err != nil {
		return err
	}
	sizes, err := s.images.Sizes(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range paused {
		if _, there := sizes[r.Saved.Image]; !there && s.engines.served(r) {
			errs = append(errs, s.locked(ctx, r.ID, func(ctx context.Context, id string) error { return s.lost(ctx, r) }))
		}
	}
	for _, n := range kept {
		if _, there := sizes[n.ID]; !there && s.engines.Has(n.Engine) {
			s.log.Error("snapshot dropped: its data is gone", "snapshot", n.ID, "sandbox", n.Sandbox)
			errs = append(errs, s.store.DeleteSnapshot(ctx, n.ID))
		}
	}
	return errors.Join(errs...)
}

// lost ends a paused sandbox whose image is gone. The lock must be held.
func (s *Service) lost(ctx context.Context, old sandbox.Row) error {
	r, err := s.store.Get(ctx, old.ID)
	if err != nil || r.State != sandbox.Paused || r.Saved.Image != old.Saved.Image {
		return ignoreUnknown(err)
	}
	s.log.Error("paused sandbox lost: its data is gone", "sandbox", r.ID)
	moved, err := s.store.Move(ctx, r.ID, sandbox.Move{From: []sandbox.State{sandbox.Paused}, To: sandbox.Stopping, Reason: sandbox.ReasonLost, Run: r.Run})
	if err != nil || !moved {
		return err
	}
	return s.finish(ctx, r.ID, time.Time{})
}

// dropUnfinished removes the rows of snapshots whose processes died over them.
func (s *Service) dropUnfinished(ctx context.Context) error {
	unfinished, err := s.store.ListSnapshots(ctx, sandbox.SnapshotQuery{AllOwners: true, Unfinished: true})
	if err != nil {
		return err
	}
	for _, n := range unfinished {
		if n.Process == s.self || s.alive(n.Process) {
			continue
		}
		if err := s.store.DeleteSnapshot(ctx, n.ID); err != nil {
			return err
		}
	}
	return nil
}

// dropImages removes what no row refers to: rows name their image before it
// is written.
func (s *Service) dropImages(ctx context.Context) (int64, error) {
	if s.images == nil {
		return 0, nil
	}
	if err := s.dropUnfinished(ctx); err != nil {
		return 0, err
	}
	var failed error
	freed, err := s.images.Prune(ctx, func(id string) bool {
		held, err := s.store.HoldsImage(ctx, id)
		failed = errors.Join(failed, err)
		return held || err != nil // what cannot be told is kept
	})
	return freed, errors.Join(err, failed)
}
