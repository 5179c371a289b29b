package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// endings end sandboxes. The lock of the ID must be held for all methods but erase.
type endings interface {
	// end takes a sandbox from any live state to stopped.
	end(ctx context.Context, id, reason string, at time.Time) (bool, error)
	// endRun ends a sandbox whose instance still has the given number.
	endRun(ctx context.Context, id string, run int64, reason string, at time.Time) error
	// finish frees the resources of a sandbox whose row is in the state stopping, or missing.
	finish(ctx context.Context, id string, at time.Time) error
	// erase removes the row of a sandbox that has ended.
	erase(ctx context.Context, id string) error
}

// repairs make this process's state of a sandbox agree with its row. The lock of the ID must be
// held for all methods but adopt.
type repairs interface {
	// adopt watches a sandbox that runs according to the store.
	adopt(ctx context.Context, id string) error
	// refresh adopts changes that another process made in a row.
	refresh(ctx context.Context, id string) error
	// adoptPolicy adopts a policy that another process has put into force.
	adoptPolicy(ctx context.Context, id string) error
	// repair brings a sandbox out of a transitional state whose process has died.
	repair(ctx context.Context, id string) error
	// repairPaused removes the instance of a paused sandbox.
	repairPaused(ctx context.Context, id string) error
}

// reconciler makes the store, the engines and the watched sandboxes agree: after a crash, and while
// other processes use the same store.
type reconciler struct {
	ends       endings
	repairs    repairs
	store      sandbox.Store
	engines    engines
	process    process
	operations *operations
	live       *liveSandboxes
	deadlines  *deadlines
	log        *slog.Logger
	silent     atomic.Bool // an engine did not answer the last time
}

// run compares all rows with all instances, and makes both agree.
func (c *reconciler) run(ctx context.Context) (Report, error) {
	var report Report
	// The order matters. A row is written before the engine acts, so an instance in the first list
	// has a row, or is not wanted any more. A sandbox whose row was running had its instance before
	// the second list.
	before, err := c.engines.instances(ctx)
	if err != nil {
		return report, err
	}
	rows, err := c.unsettledRows(ctx)
	if err != nil {
		return report, err
	}
	after, err := c.engines.instances(ctx)
	if err != nil {
		return report, err
	}
	c.noteSilent(before, after, &report)
	wanted := make(map[string]bool, len(rows))
	var work workers
	for _, r := range rows {
		wanted[r.ID] = true
		work.do(r.ID, func() (*[]string, error) { return c.reconcile(ctx, r, after.has(instance{r.Engine, r.ID}), &report) })
	}
	for inst := range before.instances {
		if wanted[inst.id] {
			continue
		}
		work.do(inst.id, func() (*[]string, error) { return c.removeOrphan(ctx, inst, &report) })
	}
	work.wait()
	for id, err := range work.failed {
		report.Failed = append(report.Failed, id)
		c.log.Error("sandbox not reconciled", "sandbox", id, "err", err)
	}
	slices.Sort(report.Failed)
	return report, nil
}

// noteSilent reports the engines that did not list their instances. Their running sandboxes are
// watched, and end when the engine answers and no longer has them. Instances without a row are left
// until then.
func (c *reconciler) noteSilent(before, after inventory, report *Report) {
	maps.Copy(after.silent, before.silent)
	for name, err := range after.silent {
		report.Silent = append(report.Silent, name)
		c.log.Warn("engine does not answer; its sandboxes are left as they are", "engine", name, "err", err, "fix", fault.HintOf(err))
	}
	slices.Sort(report.Silent)
	c.silent.Store(len(report.Silent) > 0)
}

// retrySilent reconciles again once a silent engine answers, and removes its instances without a
// row.
func (c *reconciler) retrySilent(ctx context.Context) error {
	if !c.silent.Load() {
		return nil
	}
	_, err := c.run(ctx)
	return err
}

// reconcile repairs one live row, and returns the list of the report to which the sandbox belongs.
func (c *reconciler) reconcile(ctx context.Context, r sandbox.Row, exists bool, report *Report) (*[]string, error) {
	switch {
	case !c.engines.served(r):
		return &report.Unserved, nil
	case c.process.abandoned(r):
		return &report.Abandoned, c.operations.locked(ctx, r.ID, c.abandon)
	case c.operations.isStranded(c.process, r):
		return &report.Mended, c.operations.locked(ctx, r.ID, c.repairs.repair)
	case r.State == sandbox.Stopping:
		return &report.Finished, c.operations.locked(ctx, r.ID, c.finishEnd)
	case r.State != sandbox.Running:
		return &report.Left, nil
	case !exists:
		return &report.Lost, c.operations.locked(ctx, r.ID, func(ctx context.Context, id string) error {
			return c.ends.endRun(ctx, id, r.Run, sandbox.ReasonLost, time.Time{})
		})
	case r.OnEnd.Pause: // its deadline pauses it if its time was up
	case !r.EndAt.IsZero() && !r.EndAt.After(time.Now()):
		return &report.Expired, c.operations.locked(ctx, r.ID, c.endOverdue)
	}
	if err := c.repairs.adopt(ctx, r.ID); err != nil {
		return nil, ignoreUnknown(err) // removed since the rows were read
	}
	return &report.Adopted, nil
}

// endOverdue ends a sandbox whose time expired while no process watched it.
func (c *reconciler) endOverdue(ctx context.Context, id string) error {
	started, err := c.store.Move(ctx, id, sandbox.Move{
		From: []sandbox.State{sandbox.Running}, To: sandbox.Stopping, Reason: sandbox.ReasonTimeout, EndedBy: time.Now(),
	})
	if err != nil || !started {
		return err
	}
	return c.ends.finish(ctx, id, time.Time{})
}

// removeOrphan removes an instance without a row.
func (c *reconciler) removeOrphan(ctx context.Context, inst instance, report *Report) (*[]string, error) {
	id := inst.id
	unlock, err := c.operations.locks.acquire(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	r, err := c.store.Get(ctx, id)
	if err == nil && r.State == sandbox.Paused && r.Engine == inst.engine {
		return &report.Orphans, c.repairs.repairPaused(ctx, id)
	}
	if err == nil && r.State != sandbox.Stopped || err != nil && !isUnknown(err) {
		return nil, err
	}
	e, err := c.engines.Of(inst.engine)
	if err != nil {
		return nil, err
	}
	return &report.Orphans, e.Remove(ctx, id)
}

// maxEnded limits how many ended rows are checked at each start. The relevant sandboxes ended
// recently, with their process.
const maxEnded = 100

// dropEnded removes the rows of ephemeral sandboxes that have ended and whose process died before
// it could remove them. Only then can callers see the retained data of these sandboxes.
func (c *reconciler) dropEnded(ctx context.Context) error {
	rows, err := c.store.List(ctx, sandbox.Query{AllOwners: true, Filter: sandbox.Filter{States: []sandbox.State{sandbox.Stopped}, Limit: maxEnded}})
	errs := []error{err}
	for _, r := range rows {
		if r.Ephemeral && c.process.dead(r.Process) {
			errs = append(errs, c.operations.locked(ctx, r.ID, c.ends.erase))
		}
	}
	return errors.Join(errs...)
}
