package lifecycle

import (
	"context"
	"errors"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// TemplateStates stores the memory of templates: snapshots in which a template's program is ready.
// Only the template's own sandboxes start from them, and no caller sees them.
type TemplateStates struct{ s *Service }

// TemplateStates returns the saved memory of templates.
func (s *Service) TemplateStates() TemplateStates { return TemplateStates{s} }

// Can reports whether the memory of a sandbox can be saved and restored here.
func (t TemplateStates) Can(sb sandbox.Sandbox) bool {
	_, ok := engine.As[engine.Checkpointer](t.s.engines.Registry, sb.Engine)
	return ok && t.s.states.Available() == nil
}

// Save saves the memory of a sandbox for a version of a template, and returns its ID.
func (t TemplateStates) Save(ctx context.Context, caller sandbox.Principal, id, version string) (string, error) {
	n, err := t.s.Snapshot(ctx, caller, id, sandbox.SnapshotRequest{KeptFor: version})
	return n.ID, err
}

// Remove removes saved memory. Sandboxes that were restored from it do not need it.
func (t TemplateStates) Remove(ctx context.Context, id string) error {
	n, err := t.s.store.GetSnapshot(ctx, id)
	if err == nil && n.KeptFor == "" {
		return fault.New(fault.Internal, "snapshot_not_kept", "the snapshot belongs to no template")
	}
	if err != nil {
		return ignoreUnknown(err)
	}
	return t.s.removeSnapshot(ctx, n)
}

// Sweep removes the saved memory for which needed returns false, given the version of the template
// and the ID.
func (t TemplateStates) Sweep(ctx context.Context, needed func(version, id string) bool) error {
	all, err := t.s.store.ListSnapshots(ctx, sandbox.SnapshotQuery{AllOwners: true, Templates: true})
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range all {
		if n.KeptFor != "" && !needed(n.KeptFor, n.ID) {
			errs = append(errs, t.s.removeSnapshot(ctx, n))
		}
	}
	return errors.Join(errs...)
}
