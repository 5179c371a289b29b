package server

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// templateSandboxes implements catalog.Sandboxes.
type templateSandboxes struct{ d *Server }

// templateLabel is the metadata of the sandbox that creates a version of a template. Its value is
// the version.
const templateLabel = "crannog.template"

// maxTemplateTime limits the lifetime of that sandbox if this process dies.
const maxTemplateTime = 30 * time.Minute

// Save implements catalog.Sandboxes.
func (t templateSandboxes) Save(ctx context.Context, requester sandbox.Principal, reference, version string) (memory, note string, err error) {
	s := t.d.Service
	sb, err := s.Create(ctx, requester, sandbox.CreateRequest{
		Template: reference, ForMemory: true, Timeout: maxTemplateTime, Ephemeral: requester.OnHost(), Metadata: map[string]string{templateLabel: version},
	})
	if err != nil {
		return "", "", err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if removeErr := s.Forget(ctx, requester, sb.ID); removeErr != nil && fault.KindOf(removeErr) != fault.NotFound {
			err = errors.Join(err, removeErr)
		}
	}()
	states := s.TemplateStates()
	if !states.Can(sb) {
		return "", "the engine " + sb.Engine + " cannot save memory, so each sandbox starts the program itself", nil
	}
	memory, err = states.Save(ctx, requester, sb.ID, version)
	return memory, "", err
}

// Drop implements catalog.Sandboxes.
func (t templateSandboxes) Drop(ctx context.Context, memory string) error {
	return t.d.Service.TemplateStates().Remove(ctx, memory)
}

// Clean implements catalog.Sandboxes.
func (t templateSandboxes) Clean(ctx context.Context, version string) error {
	return t.d.endLabelled(ctx, templateLabel, version)
}

// Sweep implements catalog.Sandboxes.
func (t templateSandboxes) Sweep(ctx context.Context, needed func(version, memory string) bool) error {
	return t.d.Service.TemplateStates().Sweep(ctx, needed)
}

// endLabelled ends the running sandboxes with a label.
func (d *Server) endLabelled(ctx context.Context, name, value string) error {
	requester := sandbox.Principal{Local: true}
	page, err := d.Service.List(ctx, requester, sandbox.Filter{States: []sandbox.State{sandbox.Running}, Metadata: map[string]string{name: value}})
	if err != nil {
		return err
	}
	var errs []error
	for _, sb := range page.Sandboxes {
		errs = append(errs, d.Service.Remove(ctx, requester, sb.ID))
	}
	return errors.Join(errs...)
}

// committed implements build.Committed.
type committed struct{ d *Server }

// Get implements build.Committed.
func (c committed) Get(ctx context.Context, requester sandbox.Principal, ref string) (sandbox.Sandbox, error) {
	return c.d.Service.Get(ctx, requester, ref)
}

// Tree implements build.Committed.
func (c committed) Tree(ctx context.Context, id string) (string, []string, error) {
	r, err := c.d.store.Get(ctx, id)
	if err != nil {
		return "", nil, err
	}
	var shown []string
	if r.Workspace != "" {
		shown = append(shown, sandbox.WorkspaceDir)
	}
	for _, m := range r.Base.Mounts {
		shown = append(shown, m.Target)
	}
	for _, m := range r.Base.Volumes {
		shown = append(shown, m.Target)
	}
	for _, b := range r.Base.Image.View().Binds {
		shown = append(shown, b.Target)
	}
	return r.Base.Image.View().Dir, shown, nil
}

// Archive implements build.Committed.
func (c committed) Archive(ctx context.Context, sb sandbox.Sandbox, w io.Writer) error {
	archiver, ok := engine.As[engine.Archiver](c.d.Engines, sb.Engine)
	if !ok {
		return fault.Newf(fault.Unsupported, "commit_unsupported", "the engine %s cannot report what a sandbox has changed", sb.Engine)
	}
	return archiver.Archive(ctx, sb.ID, w)
}
