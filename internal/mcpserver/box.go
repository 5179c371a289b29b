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

// box is one sandbox at which a desk works.
type box struct {
	desk *Desk
	sb   *crannog.Sandbox
	// editing is held while a file is read, changed and written back, so that
	// two edits at once cannot undo each other.
	editing sync.Mutex

	mu       sync.Mutex
	jobs     map[int]*job
	next     int
	refused  uint64 // the last refusal that was seen
	asked    map[string]bool
	extended time.Time

	heap heap // guarded by the desk's pictures
}

// labelDefault marks a key's default sandbox, so that it is found again by
// another process.
var labelDefault = map[string]string{"crannog.mcp": "default"}

// open finds the sandbox that a call is for: the one that ref names, else the
// default one, which is made if there is none.
func (d *Desk) open(ctx context.Context, ref string) (*box, error) {
	if ref == "" {
		return d.openDefault(ctx)
	}
	sb, err := d.o.Client.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	if !d.o.All && !d.ours(sb.Info()) {
		// The same error as for one that does not exist: no caller learns of another's sandbox.
		return nil, fault.Newf(fault.NotFound, "sandbox_not_found", "Sandbox %q doesn't exist or was not made here", ref).
			WithHint("leave sandbox out for the default one; sandbox with action list shows which there are")
	}
	return d.use(ctx, sb)
}

// ours reports whether a sandbox was made here, or is the one that Name names.
func (d *Desk) ours(info api.Sandbox) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, made := d.made[info.ID]
	return made || info.ID == d.first || d.o.Name != "" && info.Name == d.o.Name
}

// lasts reports whether use extends a sandbox's life: the default one that is
// kept, or one that was made here and has no other holder.
func (d *Desk) lasts(info api.Sandbox) bool {
	if d.o.Fixed {
		return false
	}
	if info.Metadata["crannog.mcp"] == labelDefault["crannog.mcp"] {
		return true
	}
	d.mu.Lock()
	_, made := d.made[info.ID]
	d.mu.Unlock()
	return made && d.o.Hold == nil || !made && d.ours(info)
}

// openDefault returns the default sandbox.
func (d *Desk) openDefault(ctx context.Context) (*box, error) {
	d.mu.Lock()
	id := d.first
	d.mu.Unlock()
	if id != "" {
		if sb, err := d.live(ctx, id); err == nil {
			return d.use(ctx, sb)
		} else if !errors.Is(err, crannog.ErrNotFound) {
			return nil, err
		}
	}
	select {
	case <-d.making:
		defer func() { d.making <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	sb, err := d.findDefault(ctx)
	if errors.Is(err, crannog.ErrNotFound) {
		sb, err = d.makeDefault(ctx)
	}
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.first = sb.ID()
	d.mu.Unlock()
	return d.use(ctx, sb)
}

// findDefault looks for a default sandbox that another call or process made.
func (d *Desk) findDefault(ctx context.Context) (*crannog.Sandbox, error) {
	d.mu.Lock()
	ref := d.first
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
	// The oldest is everybody's, should two have been made at once.
	for _, info := range slices.Backward(list) {
		if sb, err := d.live(ctx, info.ID); err == nil {
			return sb, nil
		}
	}
	return nil, crannog.ErrNotFound
}

// live finds a sandbox that has not ended.
func (d *Desk) live(ctx context.Context, ref string) (*crannog.Sandbox, error) {
	sb, err := d.o.Client.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	if s := sb.Info().State; s == "stopping" || s == "stopped" {
		return nil, crannog.ErrNotFound
	}
	return sb, nil
}

// makeDefault makes the default sandbox. One that is kept is not of those that
// end with the desk.
func (d *Desk) makeDefault(ctx context.Context) (*crannog.Sandbox, error) {
	if d.o.Name == "" && !d.o.Labelled {
		return d.make(ctx, "", "")
	}
	opts := append(slices.Clone(d.o.Create), d.o.Keep...)
	if d.o.Labelled {
		opts = append(opts, crannog.Metadata(labelDefault))
	}
	// After a cancelled call, no caller would know of the sandbox that it made.
	return d.o.Client.Create(context.WithoutCancel(ctx), append(opts, crannog.Name(d.o.Name))...)
}

// make makes a sandbox of what the operator said.
func (d *Desk) make(ctx context.Context, name, from string) (*crannog.Sandbox, error) {
	opts := slices.Clone(d.o.Create)
	if name != "" {
		opts = append(opts, crannog.Name(name))
	}
	if from != "" {
		opts = append(opts, crannog.Template(from))
	}
	// After a cancelled call, no caller would know of the sandbox that it made.
	sb, err := d.o.Client.Create(context.WithoutCancel(ctx), opts...)
	if err != nil {
		return nil, err
	}
	d.adopt(sb)
	return sb, nil
}

// adopt notes that a sandbox was made here.
func (d *Desk) adopt(sb *crannog.Sandbox) {
	rest := func() {}
	if d.o.Hold != nil {
		rest = d.o.Hold(sb)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made[sb.ID()] = rest
}

// use makes a sandbox ready for a call: it resumes a paused one, and extends the life of one
// that has an end.
func (d *Desk) use(ctx context.Context, sb *crannog.Sandbox) (*box, error) {
	switch info := sb.Info(); info.State {
	case "running":
	case "paused":
		if err := sb.Resume(ctx, 0); err != nil && crannog.Code(err) != "sandbox_running" {
			return nil, err
		}
	default:
		return nil, notRunning(info)
	}
	b := d.boxOf(sb)
	return b, b.prolong(ctx)
}

func notRunning(info api.Sandbox) error {
	text := "Sandbox " + label(info) + " is " + info.State
	if info.Reason != "" {
		text += " (" + info.Reason + ")"
	}
	return fault.New(fault.Conflict, "not_running", text).
		WithHint("sandbox with action list shows what runs; without a sandbox argument the default one is used")
}

// boxOf returns what is known of a sandbox.
func (d *Desk) boxOf(sb *crannog.Sandbox) *box {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.boxes[sb.ID()]
	if b == nil {
		b = &box{desk: d, sb: sb, jobs: map[int]*job{}, asked: map[string]bool{}}
		d.boxes[sb.ID()] = b
	}
	return b
}

// forget drops what is known of a sandbox that has ended.
func (d *Desk) forget(id string) {
	d.mu.Lock()
	rest, b := d.made[id], d.boxes[id]
	delete(d.made, id)
	delete(d.boxes, id)
	if d.first == id {
		d.first = ""
	}
	d.mu.Unlock()
	if b != nil {
		d.pictures.forgetBox(b)
	}
	if rest != nil {
		rest()
	}
}

// sweep forgets sandboxes that have ended by themselves, or by others. None is
// forgotten of which that is not known.
func (d *Desk) sweep(ctx context.Context) {
	d.mu.Lock()
	known := map[string]bool{}
	for id := range d.boxes {
		known[id] = true
	}
	for id := range d.made {
		known[id] = true
	}
	d.mu.Unlock()
	if len(known) == 0 {
		return
	}
	list, err := d.o.Client.List(ctx, crannog.ListOptions{States: []string{"creating", "running", "pausing", "paused", "resuming", "stopping"}})
	if err != nil {
		return // the next sweep may know more
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

// prolongEvery keeps a busy agent from asking for more time with each call.
const prolongEvery = time.Minute

// prolong lets a sandbox that was made for agents live on after its use.
func (b *box) prolong(ctx context.Context) error {
	info := b.sb.Info()
	mine := b.desk.lasts(info)
	b.mu.Lock()
	due := time.Since(b.extended) > prolongEvery
	if due {
		b.extended = time.Now()
	}
	b.mu.Unlock()
	if !mine || !due || info.EndsAt == nil {
		return nil
	}
	return b.sb.Extend(ctx, b.desk.o.Idle)
}

// busy reports whether something runs that only we can read or end.
func (b *box) busy() bool {
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

// workspace is where an agent's relative paths begin.
const workspace = "/workspace"

// fsName turns a path as an agent writes it into a name as package fs has it.
func fsName(path string) (string, error) {
	if path == "" || strings.ContainsRune(path, 0) || len(path) > 4096 {
		return "", fault.New(fault.Invalid, "invalid_path", "the path is empty, too long, or holds a NUL")
	}
	return cleanName(path), nil
}
