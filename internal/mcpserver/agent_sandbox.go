package mcpserver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
)

// agentSandbox is one sandbox that a Tenant uses.
type agentSandbox struct {
	tenant *Tenant
	sb     *crannog.Sandbox
	// editing is locked while a file is read, changed and written, so that two concurrent edits
	// cannot undo each other.
	editing sync.Mutex

	mu            sync.Mutex
	jobs          map[int]*job
	next          int
	lastDenial    uint64          // number of the last denial that was read
	reportedNames map[string]bool // names without a network that were reported
	extended      time.Time

	pictureUse pictureUse // guarded by Tenant.pictures
}

// labelDefault marks a key's default sandbox, so that another process finds it.
var labelDefault = map[string]string{"crannog.mcp": "default"}

// open returns the sandbox for a call: the one that ref names, or else the default one, which is
// created if there is none.
func (d *Tenant) open(ctx context.Context, ref string) (*agentSandbox, error) {
	if ref == "" {
		return d.openDefault(ctx)
	}
	sb, err := d.o.Client.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	if !d.o.All && !d.owns(sb.Info()) {
		// This is the same error as for a sandbox that does not exist, so that callers cannot
		// detect another caller's sandbox.
		return nil, fault.Newf(fault.NotFound, "sandbox_not_found", "Sandbox %q doesn't exist or was not created by these tools", ref).
			WithHint("omit sandbox for the default one; the tool sandbox with action list shows all")
	}
	return d.use(ctx, sb)
}

// owns reports whether this Tenant created a sandbox, or Name is its name.
func (d *Tenant) owns(info api.Sandbox) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, created := d.created[info.ID]
	return created || info.ID == d.defaultID || d.o.Name != "" && info.Name == d.o.Name
}

// extendsOnUse reports whether use extends a sandbox's life. It does so for a default sandbox that
// outlives this process, and for one that was created here and that no other process keeps alive.
func (d *Tenant) extendsOnUse(info api.Sandbox) bool {
	if d.o.Fixed {
		return false
	}
	if info.Metadata["crannog.mcp"] == labelDefault["crannog.mcp"] {
		return true
	}
	d.mu.Lock()
	_, created := d.created[info.ID]
	d.mu.Unlock()
	return created && d.o.Hold == nil || !created && d.owns(info)
}

// openDefault returns the default sandbox.
func (d *Tenant) openDefault(ctx context.Context) (*agentSandbox, error) {
	d.mu.Lock()
	id := d.defaultID
	d.mu.Unlock()
	if id != "" {
		if sb, err := d.live(ctx, id); err == nil {
			return d.use(ctx, sb)
		} else if !errors.Is(err, crannog.ErrNotFound) {
			return nil, err
		}
	}
	select {
	case <-d.creating:
		defer func() { d.creating <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	sb, err := d.findDefault(ctx)
	if errors.Is(err, crannog.ErrNotFound) {
		sb, err = d.createDefault(ctx)
	}
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.defaultID = sb.ID()
	d.mu.Unlock()
	return d.use(ctx, sb)
}

// findDefault looks for a default sandbox that another call or process created.
func (d *Tenant) findDefault(ctx context.Context) (*crannog.Sandbox, error) {
	d.mu.Lock()
	ref := d.defaultID
	d.mu.Unlock()
	if d.o.Name != "" {
		ref = d.o.Name
	}
	if ref != "" {
		if sb, err := d.live(ctx, ref); err == nil || !errors.Is(err, crannog.ErrNotFound) {
			return sb, err
		}
	}
	if !d.o.Labelled {
		return nil, crannog.ErrNotFound
	}
	list, err := d.o.Client.List(ctx, crannog.ListOptions{States: []string{"running", "paused"}, Metadata: labelDefault})
	if err != nil {
		return nil, err
	}
	// If two were created at once, all processes use the oldest.
	for _, info := range slices.Backward(list) {
		if sb, err := d.live(ctx, info.ID); err == nil {
			return sb, nil
		}
	}
	return nil, crannog.ErrNotFound
}

// live returns a sandbox that has not ended.
func (d *Tenant) live(ctx context.Context, ref string) (*crannog.Sandbox, error) {
	sb, err := d.o.Client.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	if s := sb.Info().State; s == "stopping" || s == "stopped" {
		return nil, crannog.ErrNotFound
	}
	return sb, nil
}

// createDefault creates the default sandbox. If it outlives this process, Close does not end it.
func (d *Tenant) createDefault(ctx context.Context) (*crannog.Sandbox, error) {
	if d.o.Name == "" && !d.o.Labelled {
		return d.create(ctx, "", "")
	}
	opts := append(slices.Clone(d.o.Create), d.o.Keep...)
	if d.o.Labelled {
		opts = append(opts, crannog.Metadata(labelDefault))
	}
	// After a canceled call, no caller would know of the created sandbox.
	return d.o.Client.Create(context.WithoutCancel(ctx), append(opts, crannog.Name(d.o.Name))...)
}

// create creates a sandbox with the operator's options.
func (d *Tenant) create(ctx context.Context, name, from string) (*crannog.Sandbox, error) {
	opts := slices.Clone(d.o.Create)
	if name != "" {
		opts = append(opts, crannog.Name(name))
	}
	if from != "" {
		opts = append(opts, crannog.Template(from))
	}
	// After a canceled call, no caller would know of the created sandbox.
	sb, err := d.o.Client.Create(context.WithoutCancel(ctx), opts...)
	if err != nil {
		return nil, err
	}
	d.adopt(sb)
	return sb, nil
}

// adopt records that a sandbox was created here.
func (d *Tenant) adopt(sb *crannog.Sandbox) {
	release := func() {}
	if d.o.Hold != nil {
		release = d.o.Hold(sb)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.created[sb.ID()] = release
}

// use prepares a sandbox for a call: it resumes a paused one, and extends the life of one that
// expires.
func (d *Tenant) use(ctx context.Context, sb *crannog.Sandbox) (*agentSandbox, error) {
	switch info := sb.Info(); info.State {
	case "running":
	case "paused":
		if err := sb.Resume(ctx, 0); err != nil && crannog.Code(err) != "sandbox_running" {
			return nil, err
		}
	default:
		return nil, notRunning(info)
	}
	b := d.sandboxOf(sb)
	return b, b.extend(ctx)
}

func notRunning(info api.Sandbox) error {
	text := "Sandbox " + label(info) + " is " + info.State
	if info.Reason != "" {
		text += " (" + info.Reason + ")"
	}
	return fault.New(fault.Conflict, "not_running", text).
		WithHint("the tool sandbox with action list shows what runs; without the argument sandbox the default one is used")
}

// sandboxOf returns the Tenant's state of a sandbox.
func (d *Tenant) sandboxOf(sb *crannog.Sandbox) *agentSandbox {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.sandboxes[sb.ID()]
	if b == nil {
		b = &agentSandbox{tenant: d, sb: sb, jobs: map[int]*job{}, reportedNames: map[string]bool{}}
		d.sandboxes[sb.ID()] = b
	}
	return b
}

// forget drops the state of a sandbox that has ended.
func (d *Tenant) forget(id string) {
	d.mu.Lock()
	release, b := d.created[id], d.sandboxes[id]
	delete(d.created, id)
	delete(d.sandboxes, id)
	if d.defaultID == id {
		d.defaultID = ""
	}
	d.mu.Unlock()
	if b != nil {
		d.pictures.forgetSandbox(b)
	}
	if release != nil {
		release()
	}
}

// sweep drops the state of sandboxes that have ended by themselves or were ended by others. It
// keeps the state if it cannot find out whether they have ended.
func (d *Tenant) sweep(ctx context.Context) {
	d.mu.Lock()
	known := map[string]bool{}
	for id := range d.sandboxes {
		known[id] = true
	}
	for id := range d.created {
		known[id] = true
	}
	d.mu.Unlock()
	if len(known) == 0 {
		return
	}
	list, err := d.o.Client.List(ctx, crannog.ListOptions{States: []string{"creating", "running", "pausing", "paused", "resuming", "stopping"}})
	if err != nil {
		return // the next sweep may succeed
	}
	for _, info := range list {
		delete(known, info.ID)
	}
	for id := range known {
		if _, err := d.live(ctx, id); errors.Is(err, crannog.ErrNotFound) {
			d.forget(id)
		}
	}
}

// extendEvery limits how often the life of a busy sandbox is extended.
const extendEvery = time.Minute

// extend extends the life of a sandbox after its use.
func (b *agentSandbox) extend(ctx context.Context) error {
	info := b.sb.Info()
	extends := b.tenant.extendsOnUse(info)
	b.mu.Lock()
	due := time.Since(b.extended) > extendEvery
	if due {
		b.extended = time.Now()
	}
	b.mu.Unlock()
	if !extends || !due || info.EndsAt == nil {
		return nil
	}
	return b.sb.Extend(ctx, b.tenant.o.Idle)
}

// busy reports whether a command runs that only this Tenant can read or end.
func (b *agentSandbox) busy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range b.jobs {
		if !j.ended() {
			return true
		}
	}
	return false
}

func label(info api.Sandbox) string {
	if info.Name != "" {
		return info.Name
	}
	return info.ID
}

// workspace is the directory for relative paths of agents.
const workspace = "/workspace"

// fsName converts an agent's path to a name of package fs.
func fsName(path string) (string, error) {
	if path == "" || strings.ContainsRune(path, 0) || len(path) > 4096 {
		return "", fault.New(fault.Invalid, "invalid_path", "the path is empty, too long, or holds a NUL")
	}
	return cleanName(path), nil
}
