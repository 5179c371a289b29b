package mcpserver

import (
	"context"
	"errors"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
)

type sandboxIn struct {
	target
	Action string `json:"action" jsonschema:"info: describe it; create: create one; use: choose it for this session; list: list all; stop: end it with everything in it."`
	Name   string `json:"name,omitempty" jsonschema:"create: a name for it."`
	From   string `json:"from,omitempty" jsonschema:"create: a snapshot, template or local image."`
}

type sandboxOut struct {
	Sandbox   string        `json:"sandbox,omitempty"`
	Sandboxes []sandboxInfo `json:"sandboxes"`
}

type sandboxInfo struct {
	ID       string `json:"id"`
	Name     string `json:"name,omitempty"`
	State    string `json:"state"`
	Template string `json:"template"`
	Boundary string `json:"boundary"`
	Net      string `json:"network"`
	EndsAt   string `json:"ends_at,omitempty"`
	MemoryMB int64  `json:"memory_mb"`
	DiskMB   int64  `json:"disk_mb"`
}

func (w *view) addSandbox() {
	actions := []string{"info", "create", "use", "list", "stop"}
	text := "Describe, create, choose, list or end sandboxes. If the argument \"sandbox\" is omitted, tools use the default sandbox, so this tool is seldom needed."
	switch {
	case w.ReadOnly:
		actions, text = []string{"info", "list"}, "Describe or list sandboxes."
	case w.Bound != "":
		actions, text = []string{"info", "stop"}, "Describe the sandbox, or end it."
	}
	if w.ReadOnly && w.Bound != "" {
		actions = []string{"info"}
	}
	add(w, tool{
		name: "sandbox", title: "Manage sandboxes", changes: !w.ReadOnly, destroys: !w.ReadOnly, text: text,
		shape: func(p map[string]*jsonschema.Schema) { oneOf(p["action"], actions...) },
	}, w.sandbox)
}

func (w *view) sandbox(ctx context.Context, c *call, in sandboxIn) (sandboxOut, error) {
	switch in.Action {
	case "list":
		return w.listSandboxes(ctx, c)
	case "create":
		return w.createSandbox(ctx, c, in)
	}
	b, err := c.sandbox(ctx, in.Sandbox)
	if err != nil {
		return sandboxOut{}, err
	}
	info, err := b.sb.Refresh(ctx)
	if err != nil {
		return sandboxOut{}, err
	}
	switch in.Action {
	case "use":
		if err := w.choose(c.req.Session, info.ID); err != nil {
			return sandboxOut{}, err
		}
		c.printf("tools use this sandbox now\n")
	case "stop":
		if err := b.sb.Kill(ctx); err != nil && !errors.Is(err, crannog.ErrNotFound) {
			return sandboxOut{}, err
		}
		w.tenant.forget(info.ID)
		info.State = "stopped"
	}
	return c.describe(info), nil
}

func (w *view) listSandboxes(ctx context.Context, c *call) (sandboxOut, error) {
	list, err := w.tenant.o.Client.List(ctx, crannog.ListOptions{States: []string{"running", "pausing", "paused", "resuming"}})
	if err != nil {
		return sandboxOut{}, err
	}
	out := sandboxOut{Sandboxes: []sandboxInfo{}}
	for _, info := range list {
		if !w.tenant.o.All && !w.tenant.owns(info) {
			continue
		}
		out.Sandboxes = append(out.Sandboxes, c.describe(info).Sandboxes...)
	}
	if len(out.Sandboxes) == 0 {
		c.printf("there is no sandbox; the default one is created when it is needed\n")
	}
	return out, nil
}

func (w *view) createSandbox(ctx context.Context, c *call, in sandboxIn) (sandboxOut, error) {
	if w.Bound != "" {
		return sandboxOut{}, fault.New(fault.Denied, "sandbox_bound", "these tools can use one sandbox only")
	}
	release, err := w.tenant.reservePlaces(ctx, 1)
	if err != nil {
		return sandboxOut{}, err
	}
	defer release()
	from := in.From
	if from != "" {
		snap, err := w.tenant.findSnapshot(ctx, from)
		switch {
		case err == nil:
			from = snap.ID
		case !errors.Is(err, crannog.ErrNotFound) && fault.KindOf(err) != fault.NotFound:
			return sandboxOut{}, err
		case !w.tenant.o.All:
			// The name may be that of a template, but not of another owner's snapshot.
			if _, err := w.tenant.o.Client.FindSnapshot(ctx, from); err == nil {
				return sandboxOut{}, fault.Newf(fault.NotFound, "template_not_found", "unknown template or snapshot %q", oneLine(from))
			}
		}
	}
	sb, err := w.tenant.create(ctx, in.Name, from)
	if err != nil {
		return sandboxOut{}, err
	}
	c.printf("created; pass its name or ID in the argument \"sandbox\", or choose it with the action \"use\"\n")
	return c.describe(sb.Info()), nil
}

// describe describes a sandbox, without its tokens.
func (c *call) describe(info api.Sandbox) sandboxOut {
	out := sandboxInfo{
		ID: info.ID, Name: info.Name, State: info.State, Template: info.Template, Boundary: info.Boundary, Net: info.Network.Net,
		MemoryMB: info.Effective.MemoryBytes >> 20, DiskMB: info.Effective.DiskBytes >> 20,
	}
	if info.EndsAt != nil {
		out.EndsAt = info.EndsAt.UTC().Format(time.RFC3339)
	}
	c.printf("%s  %s  %s  network %s  %d MB memory", label(info), info.State, info.Template, info.Network.Net, out.MemoryMB)
	if info.Name != "" {
		c.printf("  (%s)", info.ID)
	}
	if out.EndsAt != "" {
		c.printf("  until %s", out.EndsAt)
	}
	c.printf("\n")
	return sandboxOut{Sandbox: info.ID, Sandboxes: []sandboxInfo{out}}
}
