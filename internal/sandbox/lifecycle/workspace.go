package lifecycle

import (
	"context"
	"errors"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/workspace"
)

// noteWorkspace begins to note what a workspace is, beside the boot of the
// sandbox that shows it. What is returned waits for that.
func (s *Service) noteWorkspace(ctx context.Context, r sandbox.Row, from source) (wait func()) {
	if s.manifests == nil || r.Workspace == "" || r.Base.Copy != "" {
		return func() {} // a copy says by itself what it was
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.noteOrRefer(ctx, r, from); err != nil && ctx.Err() == nil {
			// Without it nothing can be compared, which is said then.
			s.log.Warn("workspace not noted", "sandbox", r.ID, "err", err)
		}
	}()
	return func() { <-done }
}

// noteOrRefer records the manifest of a new workspace. A sandbox that continues from
// a saved state refers to the manifest of the sandbox that was saved.
func (s *Service) noteOrRefer(ctx context.Context, r sandbox.Row, from source) error {
	if first := s.beganAs(ctx, r, from); first != "" {
		err := s.manifests.Refer(r.ID, first)
		if fault.CodeOf(err) != "manifest_gone" {
			return err
		}
	}
	if g := r.Base.Git; g != nil {
		return s.manifests.Make(ctx, r.ID, r.Workspace, nil, workspace.Part{Under: sandbox.GitDir, Source: g.Source})
	}
	return s.manifests.Make(ctx, r.ID, r.Workspace, nil)
}

// beganAs returns the sandbox whose files a new one continues from, or "".
func (s *Service) beganAs(ctx context.Context, r sandbox.Row, from source) string {
	switch {
	case r.Parent != "":
		return r.Parent
	case r.Origin == "" || !from.again && !from.saved.FilesOnly:
		return ""
	}
	// If the snapshot is gone by now, the workspace is taken as it is.
	n, err := s.store.GetSnapshot(ctx, r.Origin)
	if err != nil {
		return ""
	}
	return n.Sandbox
}

// dropManifest forgets what a sandbox's workspace was, unless what was kept of
// it needs that.
func (s *Service) dropManifest(id string) error {
	if s.manifests == nil || s.kept != nil && s.kept.Has(id) {
		return nil
	}
	return s.manifests.Remove(id)
}

// dropManifests drops those of sandboxes that are not there any more.
func (s *Service) dropManifests(ctx context.Context) error {
	if s.manifests == nil {
		return nil
	}
	list, err := s.manifests.List()
	errs := []error{err}
	for _, id := range list {
		r, err := s.store.Get(ctx, id)
		if err == nil && r.State != sandbox.Stopped || err != nil && !isUnknown(err) {
			continue
		}
		errs = append(errs, s.dropManifest(id))
	}
	return errors.Join(errs...)
}
