package changes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/sandbox"
)

// open opens the files that a request selects, and their earlier state. The caller must close the
// result.
func (s *Service) open(ctx context.Context, caller sandbox.Principal, ref string, req sandbox.ChangesRequest) (_ *comparison, err error) {
	o := &comparison{dir: req.Dir, since: req.Since, service: s}
	if o.dir == "" {
		o.dir = sandbox.WorkspaceDir
	}
	if o.since == "" {
		o.since = sinceStart
	}
	if !path.IsAbs(o.dir) || path.Clean(o.dir) != o.dir || o.dir == "/" {
		return nil, fault.New(fault.Invalid, "dir_invalid", "dir is an absolute path inside, without . and .., and not / itself")
	}
	if strings.HasPrefix(o.dir, sandbox.WorkspaceDir+"/") {
		// Rules about protected, exported and executed files use paths relative to the workspace,
		// and a template contains no earlier state of the workspace.
		return nil, fault.New(fault.Invalid, "dir_invalid", "a directory below "+sandbox.WorkspaceDir+" is compared as a part of it").
			WithHint("leave the directory out, and name paths: crannog diff SANDBOX src/")
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	r, err := s.source.Resolve(ctx, caller, ref)
	maybeRetained := (fault.KindOf(err) == fault.NotFound || err == nil && r.State == sandbox.Stopped) && s.retained != nil
	if err != nil && !maybeRetained {
		return nil, err
	}
	var waitErr error
	if o.deadline, o.releaseSlot, waitErr = s.comparisons.await(ctx); waitErr != nil {
		return nil, waitErr
	}
	o.undo = append(o.undo, o.releaseSlot)
	ctx, cancel := withTimeLimit(ctx, o.deadline)
	defer cancel()
	if maybeRetained {
		// The sandbox's row exists, so it can also be found by its name.
		if found, retainedErr := s.openRetained(caller, cmp.Or(r.ID, ref), o); found || retainedErr != nil {
			return o, retainedErr
		}
	}
	if err != nil {
		return nil, err
	}
	o.record = r
	if o.policy, err = s.source.Policy(r.Access); err != nil {
		return nil, err
	}
	if err := s.openSource(ctx, o); err != nil {
		return nil, err
	}
	if o.since != sinceStart {
		return o, s.openSnapshot(ctx, caller, o)
	}
	return o, s.openStart(ctx, o)
}

// openSource opens the sandbox's current files.
func (s *Service) openSource(ctx context.Context, o *comparison) error {
	r := o.record
	if r.State == sandbox.Stopped && s.retained != nil && s.retained.Has(r.ID) {
		return fault.Newf(fault.Conflict, "changes_expired", "the retained changes of sandbox %s have expired", r.ID)
	}
	opened, err := s.source.Open(ctx, r)
	if err != nil {
		return err
	}
	o.redactor, o.source = opened.Mask, guestFiles{source: s.source, row: opened.Row, redactor: opened.Mask}
	if opened.Close != nil {
		o.undo = append(o.undo, opened.Close)
	}
	return nil
}

// openSnapshot prepares a comparison of the files with a snapshot.
func (s *Service) openSnapshot(ctx context.Context, caller sandbox.Principal, o *comparison) error {
	n, err := s.source.Snapshot(ctx, caller, o.since)
	if err != nil {
		return err
	}
	o.since = n.ID
	opened, err := s.source.OpenSnapshot(ctx, o.record, n)
	if err != nil {
		return err
	}
	o.undo = append(o.undo, opened.Close)
	source := guestFiles{source: s.source, row: opened.Row, redactor: opened.Mask}
	if err := s.fetchBase(ctx, o, source); err != nil || o.record.Base.Git == nil || o.dir != sandbox.WorkspaceDir {
		return err
	}
	o.git = o.repositoryComparison(o.record.Base.Git)
	err = s.fetchBase(ctx, o.git, source)
	o.undo = append(o.undo, o.git.undo...)
	return err
}

// openStart prepares a comparison of the sandbox's files with their initial state.
func (s *Service) openStart(ctx context.Context, o *comparison) error {
	if o.dir != sandbox.WorkspaceDir {
		return s.openTemplate(ctx, o)
	}
	r := o.record
	if r.Workspace == "" {
		return nil // it started empty
	}
	host, err := os.OpenRoot(r.Workspace)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.Wrap(err, fault.NotFound, "workspace_gone", "the host directory of the sandbox does not exist any more")
	case err != nil:
		return fmt.Errorf("open the workspace: %w", err)
	}
	o.undo = append(o.undo, host.Close)
	o.base.Outside = host
	if err := s.openManifest(o); err != nil {
		return err
	}
	if r.Base.Copy == "" {
		return s.openShared(ctx, o)
	}
	dir, err := s.copies.Find(r.Base.Copy)
	if err != nil {
		return err
	}
	before, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open the copy of the workspace: %w", err)
	}
	o.undo = append(o.undo, before.Close)
	o.base.Content = before
	if o.base.Start, err = changeset.Walk(ctx, before, changeset.Bounds{}, nil); err != nil {
		return err
	}
	return s.openShared(ctx, o)
}

// openTemplate prepares a comparison of a directory other than the workspace with the template.
// Mounts below it on either side are left out.
func (s *Service) openTemplate(ctx context.Context, o *comparison) error {
	if err := o.record.Base.CheckRebuildable(); err != nil {
		return err
	}
	image := o.record.Base.Image
	if err := image.Check([]engine.ImageKind{engine.ImageHostView}); err != nil {
		return err
	}
	root := image.View()
	source, rest := root.Dir, o.dir
	mounts, err := s.source.HostBinds(ctx, o.record, o.policy)
	if err != nil {
		return err
	}
	var below []string
	for _, b := range slices.Concat(root.Binds, mounts) {
		switch {
		case o.dir == b.Target || strings.HasPrefix(o.dir, b.Target+"/"):
			source, rest, below = b.Source, strings.TrimPrefix(o.dir, b.Target), nil
		case strings.HasPrefix(b.Target, o.dir+"/"):
			below = append(below, strings.TrimPrefix(b.Target, o.dir+"/"))
		}
	}
	top, err := os.OpenRoot(source)
	if err != nil {
		return fmt.Errorf("open the template: %w", err)
	}
	o.undo = append(o.undo, top.Close)
	before, err := top.OpenRoot(path.Join(".", rest)) // a mounted file is left out
	if errors.Is(err, fs.ErrNotExist) {
		return nil // all of it is new
	}
	if err != nil {
		return fault.Wrap(err, fault.Unsupported, "dir_not_comparable", "the template's directory cannot be compared")
	}
	o.undo = append(o.undo, before.Close)
	o.base.Content = before
	o.base.Start, err = changeset.Walk(ctx, before, changeset.Bounds{}, func(name string) bool { return slices.Contains(below, name) })
	return err
}

// openManifest reads the manifest of the workspace as it was at the sandbox's start.
func (s *Service) openManifest(o *comparison) error {
	if s.manifests == nil {
		return fault.New(fault.Unsupported, "changes_unavailable", "this server cannot compare workspaces")
	}
	m, err := s.manifests.Find(o.record.ID)
	if o.record.Base.Copy != "" && fault.CodeOf(err) == "manifest_gone" {
		return nil // the copy itself is the earlier state
	}
	if err != nil {
		return err
	}
	o.base.Start, o.base.Brought = m.Start, m.Brought
	return nil
}
