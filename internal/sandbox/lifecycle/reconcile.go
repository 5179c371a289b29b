package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// Report lists what Reconcile found and did, by sandbox ID.
type Report struct {
	Adopted   []string // run, and are watched
	Expired   []string // their time was up: removed
	Lost      []string // the store had them running, the engine had not
	Abandoned []string // their process was dead: removed
	Finished  []string // their removal had begun: finished
	Orphans   []string // only the engine had them: removed
	Unserved  []string // their engine is not registered in this process: left as they are
	Left      []string // another live process is creating, keeping or changing them
	Mended    []string // their pausing or resuming was cut short: decided
	Failed    []string // what was to be done with them was not: the log says why
}

// Empty reports whether there was nothing to do.
func (r Report) Empty() bool {
	return len(slices.Concat(r.Adopted, r.Expired, r.Lost, r.Abandoned, r.Finished, r.Orphans, r.Unserved, r.Left, r.Mended, r.Failed)) == 0
}

// Reconcile compares the store with the engine, as after a crash, and makes both
// agree. Several processes may reconcile at once, also while others create and
// remove. It continues after an error and returns all errors, except those of a
// single sandbox. Such an error is logged and reported, and retried by the attendant
// or, without a row, at the next start. Otherwise one broken sandbox would keep the
// whole state directory shut.
func (s *Service) Reconcile(ctx context.Context) (Report, error) {
	var report Report
	// The order matters. A row is written before the engine acts, so an instance in
	// the first list has a row unless it is no longer wanted. An instance with a
	// running row was there before the second list.
	before, err := s.instances(ctx)
	if err != nil {
		return report, fmt.Errorf("reconcile: %w", err)
	}
	rows, err := s.unsettledRows(ctx)
	if err != nil {
		return report, fmt.Errorf("reconcile: %w", err)
	}
	after, err := s.instances(ctx)
	if err != nil {
		return report, fmt.Errorf("reconcile: %w", err)
	}
	there := make(map[instance]bool, len(after))
	for _, one := range after {
		there[one] = true
	}
	wanted := make(map[string]bool, len(rows))
	var work crew
	for _, r := range rows {
		wanted[r.ID] = true
		work.do(r.ID, func() (*[]string, error) { return s.reconcile(ctx, r, there[instance{r.Engine, r.ID}], &report) })
	}
	for _, one := range before {
		if wanted[one.id] {
			continue
		}
		work.do(one.id, func() (*[]string, error) { return s.orphan(ctx, one, &report) })
	}
	work.wait()
	for id, err := range work.failed {
		report.Failed = append(report.Failed, id)
		s.log.Error("sandbox not reconciled", "sandbox", id, "err", err)
	}
	slices.Sort(report.Failed)
	return report, errors.Join(s.dropEnded(ctx), s.relink(ctx), s.intake.CatchUp(ctx), s.intake.SweepFlows(ctx), s.recordings.Sweep(ctx), s.changes.Sweep(), s.workspaces.SweepCopies(ctx), s.workspaces.SweepManifests(ctx), s.changes.Recover(ctx))
}

// crewSize is how many sandboxes are reconciled at once: a removal mostly
// waits for the kernel.
const crewSize = 8

// crew reconciles several sandboxes at once and enters each in the list of
// the report that its work returns.
type crew struct {
	group sync.WaitGroup
	seats chan struct{}

	mu     sync.Mutex
	failed map[string]error
}

func (c *crew) do(id string, work func() (*[]string, error)) {
	if c.seats == nil {
		c.seats = make(chan struct{}, crewSize)
	}
	c.seats <- struct{}{}
	c.group.Go(func() {
		defer func() { <-c.seats }()
		list, err := work()
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case err != nil && c.failed == nil:
			c.failed = map[string]error{id: err}
		case err != nil:
			c.failed[id] = err
		case list != nil:
			*list = append(*list, id)
		}
	})
}

func (c *crew) wait() { c.group.Wait() }

// instance names what an engine holds of a sandbox.
type instance struct{ engine, id string }

// instances lists what the engines of this process hold.
func (s *Service) instances(ctx context.Context) ([]instance, error) {
	var all []instance
	for _, e := range s.engines.All() {
		name := e.Info().Name
		list, err := e.List(ctx)
		if err != nil {
			return nil, fmt.Errorf("list of the engine %s: %w", name, err)
		}
		for _, status := range list {
			all = append(all, instance{name, status.ID})
		}
	}
	return all, nil
}

// reconcile decides about one live row, and says where it is reported.
func (s *Service) reconcile(ctx context.Context, r sandbox.Row, there bool, report *Report) (*[]string, error) {
	switch {
	case !s.engines.served(r):
		return &report.Unserved, nil
	case s.abandoned(r):
		return &report.Abandoned, s.operations.locked(ctx, r.ID, s.abandon)
	case s.stranded(r):
		return &report.Mended, s.operations.locked(ctx, r.ID, s.mend)
	case r.State == sandbox.Stopping:
		return &report.Finished, s.operations.locked(ctx, r.ID, s.finishEnd)
	case r.State != sandbox.Running:
		return &report.Left, nil
	case !there:
		return &report.Lost, s.operations.locked(ctx, r.ID, func(ctx context.Context, id string) error {
			return s.endRun(ctx, id, r.Run, sandbox.ReasonLost, time.Time{})
		})
	case r.OnEnd.Pause: // the clock pauses it if its time was up
	case !r.EndAt.IsZero() && !r.EndAt.After(time.Now()):
		return &report.Expired, s.operations.locked(ctx, r.ID, s.overdue)
	}
	if err := s.adopt(ctx, r.ID); err != nil {
		return nil, ignoreUnknown(err) // removed since the rows were read
	}
	return &report.Adopted, nil
}

// overdue ends a sandbox whose time expired while no process watched it.
func (s *Service) overdue(ctx context.Context, id string) error {
	began, err := s.store.Move(ctx, id, sandbox.Move{
		From: []sandbox.State{sandbox.Running}, To: sandbox.Stopping, Reason: sandbox.ReasonTimeout, EndedBy: time.Now(),
	})
	if err != nil || !began {
		return err
	}
	return s.finish(ctx, id, time.Time{})
}

// mostEnded bounds how many ended rows are looked through at each start. Those
// that matter have ended with a process that died a moment ago.
const mostEnded = 100

// dropEnded forgets ephemeral sandboxes that have ended and whose process died
// before it could forget them: what was kept of them waits behind their rows.
func (s *Service) dropEnded(ctx context.Context) error {
	rows, err := s.store.List(ctx, sandbox.Query{AllOwners: true, Filter: sandbox.Filter{States: []sandbox.State{sandbox.Stopped}, Limit: mostEnded}})
	errs := []error{err}
	for _, r := range rows {
		if r.Ephemeral && r.Process != s.self && !s.alive(r.Process) {
			errs = append(errs, s.operations.locked(ctx, r.ID, s.erase))
		}
	}
	return errors.Join(errs...)
}

// orphan removes what only the engine holds.
func (s *Service) orphan(ctx context.Context, one instance, report *Report) (*[]string, error) {
	id := one.id
	unlock, err := s.operations.locks.acquire(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	r, err := s.store.Get(ctx, id)
	if err == nil && r.State == sandbox.Paused && r.Engine == one.engine {
		return &report.Orphans, s.sweepPaused(ctx, id)
	}
	if err == nil && r.State != sandbox.Stopped || err != nil && !isUnknown(err) {
		return nil, err
	}
	e, err := s.engines.Of(one.engine)
	if err != nil {
		return nil, err
	}
	return &report.Orphans, e.Remove(ctx, id)
}

// Pruned is what Prune has dropped.
type Pruned struct {
	Sandboxes []sandbox.Sandbox
	// Freed is how many bytes were freed of saved states that were unreferenced or stored twice.
	Freed int64
}

// Prune drops the records of stopped sandboxes that the caller may see and,
// for a local caller, whatever is dead. It returns what it dropped.
func (s *Service) Prune(ctx context.Context, who sandbox.Principal) (Pruned, error) {
	var out Pruned
	var failed []string
	if err := who.Check(); err != nil {
		return out, err
	}
	if who.Local {
		report, err := s.Reconcile(ctx)
		if err != nil {
			return out, err
		}
		failed = report.Failed
		if err := errors.Join(s.changes.ForgetAll(), s.recordings.DiscardAll(ctx)); err != nil {
			return out, err
		}
		out.Freed, err = s.sweepStates(ctx)
		if err == nil {
			// Where no process stays, no attendant settles the images later.
			var settled int64
			settled, err = s.states.SettleNow(ctx)
			out.Freed += settled
		}
		if err != nil {
			return out, err
		}
	}
	rows, err := s.store.List(ctx, sandbox.Query{
		Owner: who.KeyID, AllOwners: who.Local, Filter: sandbox.Filter{States: []sandbox.State{sandbox.Stopped}},
	})
	if err != nil {
		return out, err
	}
	for _, r := range rows {
		if err := s.erase(ctx, r.ID); err != nil {
			return out, err
		}
		out.Sandboxes = append(out.Sandboxes, r.Sandbox)
	}
	if len(failed) > 0 {
		return out, fault.Newf(fault.Internal, "prune_incomplete", "what is left of sandboxes could not be removed: %s", strings.Join(failed, ", ")).
			WithHint("the server's log says why")
	}
	return out, nil
}
