package mcpserver

import (
	"context"
	"errors"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
)

type snapshotIn struct {
	target
	Name string `json:"name,omitempty" jsonschema:"A name for it."`
}

type snapshotOut struct {
	Snapshot string `json:"snapshot" jsonschema:"ID, for rollback and sandbox."`
	Name     string `json:"name,omitempty"`
	Bytes    int64  `json:"size_bytes"`
	Sandbox  string `json:"sandbox"`
}

type rollbackIn struct {
	target
	Snapshot string `json:"snapshot" jsonschema:"ID or name of a snapshot of this sandbox, or start for its beginning."`
}

type rollbackOut struct {
	Snapshot string `json:"snapshot"`
	Sandbox  string `json:"sandbox"`
}

type forkIn struct {
	target
	Count int `json:"count,omitempty" jsonschema:"How many copies; one if absent."`
}

type forkOut struct {
	Copies  []string `json:"copies" jsonschema:"IDs of the copies, for the argument sandbox of other tools."`
	Failed  string   `json:"failed,omitempty" jsonschema:"Why there are fewer copies than requested."`
	Sandbox string   `json:"sandbox"`
}

// maxForks bounds one call: each copy has memory of its own.
const maxForks = 10

func (w *view) addStates() {
	add(w, tool{
		name: "snapshot", title: "Save the sandbox's state", changes: true,
		text: "Save the sandbox's files, memory and running programs, so that rollback can restore them. Use it before a risky step.",
	}, w.snapshot)
	add(w, tool{
		name: "rollback", title: "Return to a saved state", changes: true, destroys: true, repeats: true,
		text: "Restore the sandbox from a snapshot. All later changes and running commands are lost.",
	}, w.rollback)
	if w.Bound != "" {
		return // a copy would be another sandbox
	}
	add(w, tool{
		name: "fork", title: "Copy the sandbox", changes: true,
		text: "Copy the sandbox with its files, memory and running programs, to try several ways at once. Use a copy by its ID as the argument sandbox.",
		shape: func(p map[string]*jsonschema.Schema) {
			inRange(p["count"], 1, maxForks)
			defaultsTo(p["count"], "1")
		},
	}, w.fork)
}

func (w *view) snapshot(ctx context.Context, c *call, in snapshotIn) (snapshotOut, error) {
	b, err := c.sandbox(ctx, in.Sandbox)
	if err != nil {
		return snapshotOut{}, err
	}
	snap, err := b.sb.Snapshot(ctx, api.CreateSnapshot{Name: in.Name})
	if err != nil {
		return snapshotOut{}, err
	}
	c.printf("saved as %s, %d bytes\n", firstNonEmpty(snap.Name, snap.ID), snap.Bytes)
	return snapshotOut{Snapshot: snap.ID, Name: snap.Name, Bytes: snap.Bytes, Sandbox: b.sb.ID()}, nil
}

func (w *view) rollback(ctx context.Context, c *call, in rollbackIn) (rollbackOut, error) {
	b, err := c.sandbox(ctx, in.Sandbox)
	if err != nil {
		return rollbackOut{}, err
	}
	out := rollbackOut{Snapshot: "start", Sandbox: b.sb.ID()}
	if in.Snapshot == "start" {
		err = b.sb.Reset(ctx)
	} else {
		var snap api.Snapshot
		if snap, err = w.snapshotFor(ctx, b, in.Snapshot); err != nil {
			return rollbackOut{}, err
		}
		out.Snapshot = snap.ID
		err = b.sb.Rollback(ctx, snap.ID)
	}
	if err != nil {
		return rollbackOut{}, err
	}
	c.printf("the sandbox is as it was at %s\n", firstNonEmpty(in.Snapshot, out.Snapshot))
	return out, nil
}

// snapshotFor returns a snapshot for a sandbox. Tools that are bound to one sandbox may use only
// its own snapshots, because others contain files and memory of other sandboxes.
func (w *view) snapshotFor(ctx context.Context, b *agentSandbox, ref string) (api.Snapshot, error) {
	snap, err := w.tenant.findSnapshot(ctx, ref)
	if err == nil && w.Bound != "" && snap.Sandbox != b.sb.ID() {
		return api.Snapshot{}, noSnapshot(ref)
	}
	return snap, err
}

func noSnapshot(ref string) error {
	return fault.Newf(fault.NotFound, "snapshot_not_found", "these sandboxes have no snapshot %q", oneLine(ref))
}

// findSnapshot returns a snapshot that the agent may use. The machine's user may access all
// snapshots, with their memory; an agent must not.
func (d *Tenant) findSnapshot(ctx context.Context, ref string) (api.Snapshot, error) {
	snap, err := d.o.Client.FindSnapshot(ctx, ref)
	if errors.Is(err, crannog.ErrNotFound) {
		return snap, noSnapshot(ref)
	}
	if err != nil || d.o.All {
		return snap, err
	}
	d.mu.Lock()
	_, known := d.sandboxes[snap.Sandbox]
	d.mu.Unlock()
	if !known {
		return api.Snapshot{}, noSnapshot(ref)
	}
	return snap, nil
}

func (w *view) fork(ctx context.Context, c *call, in forkIn) (forkOut, error) {
	b, err := c.sandbox(ctx, in.Sandbox)
	if err != nil {
		return forkOut{}, err
	}
	release, err := w.tenant.reservePlaces(ctx, max(in.Count, 1))
	if err != nil {
		return forkOut{}, err
	}
	defer release()
	copies, err := b.sb.Fork(context.WithoutCancel(ctx), w.tenant.forkRequest(max(in.Count, 1)))
	if err != nil && len(copies) == 0 {
		return forkOut{}, err
	}
	out := forkOut{Copies: []string{}, Sandbox: b.sb.ID()}
	for _, sb := range copies {
		w.tenant.adopt(sb)
		out.Copies = append(out.Copies, sb.ID())
		c.printf("%s\n", sb.ID())
	}
	if err != nil {
		_, _, out.Failed, _ = explain(err)
		c.printf("[not all copies were created: %s]\n", inert(out.Failed))
	}
	return out, nil
}

// forkRequest requests copies that end with this Tenant, as other sandboxes do. With a longer
// lifetime they would outlive tools that were killed.
func (d *Tenant) forkRequest(n int) api.CreateFork {
	var as api.CreateSandbox
	for _, o := range d.o.Create {
		o(&as)
	}
	if as.TimeoutSeconds == 0 && !as.Forever {
		as.TimeoutSeconds = d.o.Idle.Seconds()
	}
	return api.CreateFork{Count: n, TimeoutSeconds: as.TimeoutSeconds, Forever: as.Forever, Ephemeral: as.Ephemeral}
}

// maxSandboxes bounds the sandboxes of one agent.
const maxSandboxes = 20

// reservePlaces reserves places for more sandboxes, until the returned function is called. It
// counts sandboxes that are being created, so that concurrent calls together do not exceed the
// limit.
func (d *Tenant) reservePlaces(ctx context.Context, more int) (release func(), err error) {
	if release, ok := d.reserve(more); ok {
		return release, nil
	}
	d.sweep(ctx) // some may have ended
	if release, ok := d.reserve(more); ok {
		return release, nil
	}
	return nil, fault.Newf(fault.Exhausted, "too_many_sandboxes", "these tools may have %d sandboxes at a time", maxSandboxes).
		WithHint("the tool sandbox with action stop ends one")
}

func (d *Tenant) reserve(more int) (release func(), ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	have := len(d.created) + d.reserved
	if _, counted := d.created[d.defaultID]; d.defaultID != "" && !counted {
		have++ // the default one, kept by its name or label
	}
	if have+more > maxSandboxes {
		return nil, false
	}
	d.reserved += more
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.reserved -= more
	}, true
}
