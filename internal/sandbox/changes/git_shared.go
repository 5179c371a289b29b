package changes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/host/pattern"
	"github.com/crannog/crannog/internal/sandbox"
)

func underGit(name string) string { return path.Join(sandbox.GitDir, name) }

// isGit reports whether a path of the workspace is its .git, or below it.
func isGit(name string) bool {
	return name == sandbox.GitDir || strings.HasPrefix(name, sandbox.GitDir+"/")
}

// ofGit returns the path in the repository of a file that is below .git.
func ofGit(name string) (string, bool) { return strings.CutPrefix(name, sandbox.GitDir+"/") }

// notGit returns the path of a file that is not below .git.
func notGit(name string) (string, bool) { return name, !isGit(name) }

// splitGit separates the entries of the work tree from those of the repository, which get paths
// relative to the repository.
func splitGit(all []changeset.Entry) (tree, git []changeset.Entry) {
	for _, e := range all {
		if rest, ok := ofGit(e.Path); ok {
			e.Path = rest
			git = append(git, e)
		} else if !isGit(e.Path) {
			tree = append(tree, e)
		}
	}
	return tree, git
}

// objectName matches the object files that are exported: loose ones and packs, which are named by
// their content. Other files in the objects directory control how objects are read.
var objectName = pattern.New(`^objects/([0-9a-f]{2}/([0-9a-f]{38}|[0-9a-f]{62})|pack/pack-[0-9a-f]{40,64}\.(pack|idx|rev))$`)

// mayExportShared reports whether a file of a shared repository may be exported at all. This
// sandbox must not change the files of other work trees or of the main one.
func mayExportShared(g *sandbox.Shared, name string) bool {
	top, rest, below := strings.Cut(name, "/")
	switch top {
	case "objects":
		dir := !below || rest == "pack" || len(rest) == 2
		return dir || objectName.MatchString(name)
	case "refs":
		// These references belong to another work tree.
		first, _, _ := strings.Cut(rest, "/")
		return g.Worktree == "" || first != "bisect" && first != "worktree" && first != "rewritten"
	case "logs":
		return g.Worktree == "" || rest != "HEAD"
	case "packed-refs", "shallow", "config", "hooks", "info":
		return true
	case "worktrees":
		name, file, _ := strings.Cut(rest, "/")
		if g.Worktree == "" || name != g.Worktree {
			return false
		}
		return file != "" && file != "gitdir" && file != "commondir" && file != "locked"
	}
	return g.Worktree == "" && top != "modules"
}

// openShared adds the repository that a workspace shares to the comparison.
func (s *Service) openShared(ctx context.Context, o *comparison) error {
	g := o.record.Base.Git
	if g == nil || o.dir != sandbox.WorkspaceDir || sandbox.HiddenBelow(slices.Concat(o.record.Base.Hide, o.record.Base.Absent))(g.Target) != "" {
		return nil
	}
	host, err := os.OpenRoot(g.Source)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.Wrap(err, fault.NotFound, "repository_gone", "the repository of the workspace does not exist any more")
	case err != nil:
		return fmt.Errorf("open the repository: %w", err)
	}
	o.undo = append(o.undo, host.Close)
	o.git = o.repositoryComparison(g)
	o.git.base.Outside = host
	o.base.Start, o.git.base.Start = splitGit(o.base.Start)
	o.base.Brought, o.git.base.Brought = splitGit(o.base.Brought)
	if o.record.Base.Copy == "" {
		return nil
	}
	before, err := s.copyOf(o, g)
	if err != nil {
		return err
	}
	o.undo = append(o.undo, before.Close)
	o.git.base.Content = before
	o.git.base.Start, err = changeset.Walk(ctx, before, changeset.Bounds{}, nil)
	return err
}

// repositoryComparison returns the comparison of the files of a repository.
func (o *comparison) repositoryComparison(g *sandbox.Shared) *comparison {
	return &comparison{record: o.record, policy: o.policy, source: o.source, dir: g.Target, since: o.since, redactor: o.redactor, service: o.service}
}

// copyOf opens the copy of a repository that was made at the start.
func (s *Service) copyOf(o *comparison, g *sandbox.Shared) (*os.Root, error) {
	i := slices.IndexFunc(o.record.Base.Mounts, func(m sandbox.Mount) bool { return g.Target == m.Target || strings.HasPrefix(g.Target, m.Target+"/") })
	if i < 0 {
		return nil, fault.New(fault.NotFound, "workspace_copy_gone", "the copy of the repository is gone")
	}
	dir, err := s.copies.FindPart(o.record.Base.Copy, i+1)
	if err != nil {
		return nil, err
	}
	top, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the copy of the repository: %w", err)
	}
	rest := strings.TrimPrefix(g.Target[len(o.record.Base.Mounts[i].Target):], "/")
	if rest == "" {
		return top, nil
	}
	defer top.Close()
	return top.OpenRoot(rest)
}

// addRepository adds the changes in a shared repository to those in its work tree, with the same
// checks as for the workspace's own .git.
func (o *comparison) addRepository(ctx context.Context, set *changeset.Set, lines, text bool) error {
	g, shared := o.git, o.record.Base.Git
	match := o.policy.Files().Matcher()
	inside := path.Join(sandbox.WorkspaceDir, sandbox.GitDir)
	paths := match.ProtectedPaths()
	hidden := sandbox.HiddenBelow(slices.Concat(o.record.Base.Hide, o.record.Base.Absent))
	part, err := changeset.Compare(ctx, g.source, g.base, changeset.Options{
		Dir: g.dir, Lines: lines, Text: text, Under: sandbox.GitDir, Paths: paths, Start: paths.Start(inside),
		Protected: func(name string) bool { return match.Protected(path.Join(inside, name)) },
		Ignore: func(name string) bool {
			at := path.Join(g.dir, name)
			return !mayExportShared(shared, name) || match.Denied(at) || match.Denied(path.Join(inside, name)) || hidden(at) != ""
		},
	})
	if err != nil {
		return err
	}
	part.Changes = slices.DeleteFunc(part.Changes, func(c changeset.Change) bool {
		// Objects are only added, never removed. Git inside may remove objects as unused that other
		// work trees need, and a repacked pack contains the objects of the old ones.
		return c.New == nil && (strings.HasPrefix(c.Path, "objects/") || c.Path == path.Join("worktrees", shared.Worktree, "HEAD"))
	})
	for i := range part.Changes {
		// An object is named by its content, so a changed object is invalid.
		if c := &part.Changes[i]; c.Op == changeset.Changed && c.New.Type == changeset.Regular && objectName.MatchString(c.Path) {
			c.Flags = append(c.Flags, changeset.GitUnchecked)
		}
	}
	if err := g.inspectGit(ctx, part); err != nil {
		return err
	}
	for _, c := range part.Changes {
		set.Changes = append(set.Changes, c.Renamed(underGit))
		set.Added += c.Added
		set.Removed += c.Removed
	}
	slices.SortFunc(set.Changes, func(a, b changeset.Change) int { return strings.Compare(a.Path, b.Path) })
	o.source = changeset.Graft(o.source, o.dir, sandbox.GitDir, g.source, g.dir)
	return nil
}

// applyShared applies changes to the workspace and to the repository that it shares. It makes the
// checks for both before it calls ready once, with all changes. It returns the new manifest
// entries, also with an error.
func (s *Service) applyShared(ctx context.Context, o *comparison, chosen []changeset.Change, overwrite bool, ready func([]changeset.Change) error) ([]changeset.Entry, error) {
	options := func(target *comparison, ready func([]changeset.Change) error) changeset.ApplyOptions {
		return changeset.ApplyOptions{Dir: target.dir, Journals: s.journals, Overwrite: overwrite, Ready: ready}
	}
	var tree, git []changeset.Change
	for _, c := range chosen {
		if _, ok := ofGit(c.Path); ok && o.git != nil {
			git = append(git, c.Renamed(func(name string) string { rest, _ := ofGit(name); return rest }))
		} else {
			tree = append(tree, c)
		}
	}
	if len(git) == 0 {
		return changeset.Apply(ctx, o.source, o.base.Outside, tree, options(o, ready))
	}
	var entries []changeset.Entry
	gitEntries, err := changeset.Apply(ctx, o.git.source, o.git.base.Outside, git, options(o.git, func(applied []changeset.Change) error {
		var all []changeset.Change
		for _, c := range applied {
			all = append(all, c.Renamed(underGit))
		}
		if len(tree) == 0 {
			return ready(all)
		}
		var err error
		entries, err = changeset.Apply(ctx, o.source, o.base.Outside, tree, options(o, func(applied []changeset.Change) error {
			all = append(all, applied...)
			slices.SortFunc(all, func(a, b changeset.Change) int { return strings.Compare(a.Path, b.Path) })
			return ready(all)
		}))
		return err
	}))
	for _, e := range gitEntries {
		e.Path = underGit(e.Path)
		entries = append(entries, e)
	}
	return entries, err
}
