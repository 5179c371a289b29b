package workspaces

import (
	"context"
	"errors"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/workspace"
)

// StartManifest starts to write the manifest of a workspace, in parallel to the boot of its
// sandbox. The returned function waits until it is written. continues is set if the sandbox starts
// with the files of a snapshot.
func (s *Service) StartManifest(ctx context.Context, r sandbox.Row, continues bool) (wait func()) {
	if s.deps.Manifests == nil || r.Workspace == "" || r.Base.Copy != "" {
		return func() {} // a copy itself shows the earlier state
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.writeManifest(ctx, r, continues); err != nil && ctx.Err() == nil {
			// Without a manifest no comparison is possible, which the comparison then reports.
			s.deps.Log.Warn("manifest of the workspace not written", "sandbox", r.ID, "err", err)
		}
	}()
	return func() { <-done }
}

// writeManifest writes the manifest of a new workspace. A sandbox that starts from a saved state
// refers to the manifest of the saved sandbox.
func (s *Service) writeManifest(ctx context.Context, r sandbox.Row, continues bool) error {
	if first := s.firstSandbox(ctx, r, continues); first != "" {
		err := s.deps.Manifests.Refer(r.ID, first)
		if fault.CodeOf(err) != "manifest_gone" {
			return err
		}
	}
	if g := r.Base.Git; g != nil {
		return s.deps.Manifests.Make(ctx, r.ID, r.Workspace, nil, workspace.Part{Under: sandbox.GitDir, Source: g.Source})
	}
	return s.deps.Manifests.Make(ctx, r.ID, r.Workspace, nil)
}

// firstSandbox returns the ID of the sandbox with whose files a new sandbox starts, or "".
func (s *Service) firstSandbox(ctx context.Context, r sandbox.Row, continues bool) string {
	switch {
	case r.Parent != "":
		return r.Parent
	case r.Origin == "" || !continues:
		return ""
	}
	// If the snapshot has been removed, the manifest is written from the present workspace.
	n, err := s.deps.Rows.GetSnapshot(ctx, r.Origin)
	if err != nil {
		return ""
	}
	return n.Sandbox
}

// Forget removes the manifest of a sandbox's workspace, unless retained changes need it.
func (s *Service) Forget(id string) error {
	if s.deps.Manifests == nil || s.deps.Retained != nil && s.deps.Retained.Has(id) {
		return nil
	}
	return s.deps.Manifests.Remove(id)
}

// SweepManifests removes manifests of sandboxes that do not exist any more.
func (s *Service) SweepManifests(ctx context.Context) error {
	if s.deps.Manifests == nil {
		return nil
	}
	list, err := s.deps.Manifests.List()
	errs := []error{err}
	for _, id := range list {
		r, err := s.deps.Rows.Get(ctx, id)
		if err == nil && r.State != sandbox.Stopped || err != nil && !isNotFound(err) {
			continue
		}
		errs = append(errs, s.Forget(id))
	}
	return errors.Join(errs...)
}
