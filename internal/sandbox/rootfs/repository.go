package rootfs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/gitrepo/pointer"
	"github.com/crannog/crannog/internal/sandbox"
)

// AddRepository mounts the repository to which the workspace's .git refers. If the repository
// cannot be mounted, it adds a note that explains why git fails inside.
func AddRepository(b *sandbox.Base, workspace string, image engine.Image, match policy.Matcher) {
	if workspace == "" || match.Denied(sandbox.WorkspaceDir+"/.git") || match.Denied(sandbox.WorkspaceDir+"/.git"+anyFile) {
		return
	}
	repo, err := pointer.Find(workspace)
	if err != nil {
		noteGit(b, err)
		return
	}
	if repo == nil {
		noteBorrowed(b, pointer.Borrows(workspace))
		return
	}
	if match.Denied(repo.Dir) || match.Denied(repo.Dir+anyFile) {
		b.Notes = append(b.Notes, "git does not work inside: the policy hides "+repo.Dir)
		return
	}
	if image.Kind() != "" && image.HostView == nil {
		b.Notes = append(b.Notes, "git does not work inside: the engine mounts nothing of this host besides the workspace, and the repository is in "+repo.Dir)
		return
	}
	if !showsItself(b, repo.Dir) {
		if err := checkTarget(b, image, repo.Dir); err != nil {
			noteGit(b, err)
			return
		}
		b.Mounts = append(b.Mounts, sandbox.Mount{Source: repo.Dir, Target: repo.Dir})
	}
	b.Git = &sandbox.Shared{Source: repo.Dir, Target: repo.Dir, Worktree: repo.Worktree}
	// The repository and the work tree refer to each other by the host's paths, or by relative
	// ones.
	linkAt(b, image, workspace, sandbox.WorkspaceDir)
	if _, err := os.Lstat(filepath.Join(workspace, ".gitmodules")); repo.Relative || err == nil {
		if relative, err := filepath.Rel(workspace, repo.GitDir); err == nil {
			linkAt(b, image, path.Join(sandbox.WorkspaceDir, relative), repo.GitDir)
		}
	}
	noteBorrowed(b, repo.Borrowed)
}

// linkAt creates a link inside if its path is free and differs from its target.
func linkAt(b *sandbox.Base, image engine.Image, at, target string) {
	if at != target && checkTarget(b, image, at) == nil {
		b.Links = append(b.Links, engine.Link{Path: at, Target: target})
	}
}

// showsItself reports whether a path of the host is mounted at the same path inside.
func showsItself(b *sandbox.Base, name string) bool {
	return slices.ContainsFunc(b.Mounts, func(m sandbox.Mount) bool {
		return m.Source == m.Target && (name == m.Source || strings.HasPrefix(name, m.Source+"/"))
	})
}

func noteGit(b *sandbox.Base, err error) {
	text := "its repository cannot be read"
	if fault.KindOf(err) != fault.Internal {
		text = fault.PublicText(err)
	}
	if !strings.HasPrefix(text, "git ") {
		text = "git does not work inside: " + text
	}
	if hint := fault.HintOf(err); hint != "" {
		text += " (" + hint + ")"
	}
	b.Notes = append(b.Notes, text)
}

// noteBorrowed names object directories that a repository uses but that are not mounted. Any
// repository can claim to use those of any other: mounting them would let a tree from a third party
// expose the user's other projects.
func noteBorrowed(b *sandbox.Base, list []string) {
	for _, dir := range list {
		if !showsItself(b, dir) {
			b.Notes = append(b.Notes, "git objects are missing inside: the repository uses those of "+dir+" (--mount "+dir+":ro shows them)")
		}
	}
}

// gitDirs are the directories that git creates at the top of a repository.
var gitDirs = []string{
	"annex", "branches", "common", "filter-repo", "hooks", "info", "lfs", "logs", "modules", "objects", "rebase-apply", "rebase-merge", "refs",
	"reftable", "rr-cache", "sequencer", "svn", "worktrees",
}

// outsideRepository returns a function that reports whether a path below a mount lies outside of
// the mounted repository. A bare repository often has work trees beside its own directories. The
// workspace is one of them; the others must not be visible inside.
func outsideRepository(b sandbox.Base, target string) func(name string) bool {
	if b.Git == nil || b.Git.Target != target {
		return func(string) bool { return false }
	}
	return func(name string) bool {
		name = strings.TrimPrefix(name, "/")
		if otherModules(b.Git, name) {
			return true
		}
		top, _, _ := strings.Cut(name, "/")
		if top == "" || path.Base(target) == ".git" || slices.Contains(gitDirs, top) {
			return false
		}
		info, err := os.Lstat(filepath.Join(b.Git.Source, top))
		return err != nil || info.IsDir()
	}
}

// otherModules reports whether a directory of a repository holds submodules of another work tree.
func otherModules(g *sandbox.Shared, rel string) bool {
	if g.Worktree == "" {
		return false
	}
	parts := strings.Split(rel, "/")
	return rel == "modules" || len(parts) == 3 && parts[0] == "worktrees" && parts[1] != g.Worktree && parts[2] == "modules"
}

// onlyGit hides files that are not part of the repository, or that belong to submodules of other
// work trees, and checks the rest.
func (w *walk) onlyGit(git *sandbox.Shared, visit func(name, inside string, d fs.DirEntry) error) func(name, inside string, d fs.DirEntry) error {
	bare := path.Base(git.Target) != ".git"
	return func(name, inside string, d fs.DirEntry) error {
		rel := strings.TrimPrefix(inside, git.Target+"/")
		if !d.IsDir() || !otherModules(git, rel) && (!bare || strings.Contains(rel, "/") || slices.Contains(gitDirs, rel)) {
			return visit(name, inside, d)
		}
		if !w.copied {
			w.hide = append(w.hide, inside)
		}
		return fs.SkipDir
	}
}
