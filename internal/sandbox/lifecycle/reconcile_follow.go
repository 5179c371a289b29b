package lifecycle

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/sandbox"
)

var liveStates = []sandbox.State{sandbox.Creating, sandbox.Waiting, sandbox.Running, sandbox.Pausing, sandbox.Resuming, sandbox.Stopping}

// unsettledRows returns the live rows, and those of paused sandboxes that should have ended with a
// process that is dead. No other code handles the latter.
func (c *reconciler) unsettledRows(ctx context.Context) ([]sandbox.Row, error) {
	rows, err := c.store.List(ctx, sandbox.Query{AllOwners: true, Filter: sandbox.Filter{States: liveStates}})
	if err != nil {
		return nil, err
	}
	paused, err := c.store.List(ctx, sandbox.Query{AllOwners: true, Ephemeral: true, Filter: sandbox.Filter{States: []sandbox.State{sandbox.Paused}}})
	for _, r := range paused {
		if c.process.abandoned(r) {
			rows = append(rows, r)
		}
	}
	return rows, err
}

// follow adopts the changes of other processes and finishes interrupted operations.
func (c *reconciler) follow(ctx context.Context) error {
	rows, err := c.unsettledRows(ctx)
	if err != nil {
		return err
	}
	seen := make(map[string]bool, len(rows))
	for _, r := range rows {
		seen[r.ID] = true
		if err := c.reconcileRow(ctx, r); err != nil {
			c.log.Warn("sandbox not reconciled", "sandbox", r.ID, "err", err)
		}
	}
	for _, b := range c.live.list() {
		if !seen[b.id] {
			if err := c.operations.locked(ctx, b.id, c.repairs.refresh); err != nil {
				c.log.Warn("sandbox not reconciled", "sandbox", b.id, "err", err)
			}
		}
	}
	return nil
}

// reconcileRow makes one live row and this Service's state of the sandbox agree.
func (c *reconciler) reconcileRow(ctx context.Context, r sandbox.Row) error {
	switch {
	case !c.engines.served(r):
		return nil
	case c.process.abandoned(r):
		return c.operations.locked(ctx, r.ID, c.abandon)
	case r.State == sandbox.Stopping:
		return c.operations.locked(ctx, r.ID, c.finishEnd)
	case c.operations.isStranded(c.process, r):
		return c.operations.locked(ctx, r.ID, c.repairs.repair)
	case r.State != sandbox.Running:
		return nil
	}
	watched, same, policyChanged := c.live.compare(r)
	if policyChanged {
		if err := c.operations.locked(ctx, r.ID, c.repairs.adoptPolicy); err != nil {
			return err
		}
	}
	switch {
	case !watched:
		return ignoreUnknown(c.repairs.adopt(ctx, r.ID))
	case same:
		return nil
	}
	return c.operations.locked(ctx, r.ID, c.resend)
}

// abandon removes a sandbox whose process is dead, including its row.
func (c *reconciler) abandon(ctx context.Context, id string) error {
	if _, err := c.ends.end(ctx, id, sandbox.ReasonLost, time.Time{}); err != nil {
		return err
	}
	return c.ends.erase(ctx, id)
}

// finishEnd finishes a removal that failed or whose process died.
func (c *reconciler) finishEnd(ctx context.Context, id string) error {
	r, err := c.store.Get(ctx, id)
	if err != nil || r.State != sandbox.Stopping {
		return ignoreUnknown(err)
	}
	return c.ends.finish(ctx, id, time.Time{})
}

// resend adopts the row's end and sends it to the guest again.
func (c *reconciler) resend(ctx context.Context, id string) error {
	if err := c.repairs.refresh(ctx, id); err != nil {
		return err
	}
	if r, unsent := c.live.unsentEnd(id); unsent {
		c.deadlines.notify(ctx, r)
	}
	return nil
}
