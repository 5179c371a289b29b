package sandbox

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
)

// Shared is the repository of a workspace that is a linked work tree or a submodule. It
// lies outside of the workspace, and is shown where the work tree's .git looks for it.
type Shared struct {
	Source string `json:"source"` // on the host
	Target string `json:"target"` // inside
	// Worktree is the name of the linked work tree in it, or "".
	Worktree string `json:"worktree,omitempty"`
}

// showRepository shows the repository that the workspace's .git names. What is not
// shown is noted: git would be dead inside without a word.
func (b *Base) showRepository(workspace string, root engine.Root, match policy.Matcher) {
	if workspace == "" || match.Denied(workspaceDir+"/.git") || match.Denied(workspaceDir+"/.git"+anyFile) {
		return
	}
	repo, err := pointer.Find(workspace)
	if err != nil {
		b.noteGit(err)
		return
	}
	if repo == nil {
		b.noteBorrowed(pointer.Borrows(workspace))
		return
	}
	if match.Denied(repo.Dir) || match.Denied(repo.Dir+anyFile) {
		b.Notes = append(b.Notes, "git does not work inside: the policy hides "+repo.Dir)
		return
	}
	if !b.showsItself(repo.Dir) {
		if err := b.free(root, repo.Dir); err != nil {
			b.noteGit(err)
			return
		}
		b.Mounts = append(b.Mounts, Mount{Source: repo.Dir, Target: repo.Dir})
	}
	b.Git = &Shared{Source: repo.Dir, Target: repo.Dir, Worktree: repo.Worktree}
	// The repository names its work tree by the host's path, or by the way from one to
	// the other; and so does the work tree.
	b.link(root, workspace, workspaceDir)
	if _, err := os.Lstat(filepath.Join(workspace, ".gitmodules")); repo.Relative || err == nil {
		if way, err := filepath.Rel(workspace, repo.GitDir); err == nil {
			b.link(root, path.Join(workspaceDir, way), repo.GitDir)
		}
	}
	b.noteBorrowed(repo.Borrowed)
}

// link makes a link inside if its place is free, and is not where it leads to.
func (b *Base) link(root engine.Root, at, target string) {
	if at != target && b.free(root, at) == nil {
		b.Links = append(b.Links, engine.Link{Path: at, Target: target})
	}
}

// showsItself reports whether mounts show a path of the host's at the same path.
func (b *Base) showsItself(name string) bool {
	return slices.ContainsFunc(b.Mounts, func(m Mount) bool {
		return m.Source == m.Target && (name == m.Source || strings.HasPrefix(name, m.Source+"/"))
	})
}

func (b *Base) noteGit(err error) {
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

// noteBorrowed names directories of objects that a repository uses and that are not
// shown. Any repository can name those of any other, and nothing in these says
// that it may: a tree that somebody else wrote would show the user's other projects.
func (b *Base) noteBorrowed(list []string) {
	for _, dir := range list {
		if !b.showsItself(dir) {
			b.Notes = append(b.Notes, "git lacks objects inside: the repository borrows them from "+dir+" (--mount "+dir+":ro shows them)")
		}
	}
}

// gitDirs are the directories that git has at the top of a repository.
var gitDirs = []string{
	"annex", "branches", "common", "filter-repo", "hooks", "info", "lfs", "logs", "modules", "objects", "rebase-apply", "rebase-merge", "refs",
	"reftable", "rr-cache", "sequencer", "svn", "worktrees",
}

// strange returns a function that reports whether a path below a mount is outside the
// repository that the mount shows. A bare repository often has work trees beside its
// own directories. The workspace is one of them; the others must not be visible
// inside.
func (b Base) strange(target string) func(name string) bool {
	if b.Git == nil || b.Git.Target != target {
		return func(string) bool { return false }
	}
	return func(name string) bool {
		name = strings.TrimPrefix(name, "/")
		if b.Git.modules(name) {
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

// modules reports whether a directory of a repository has submodules of another work tree.
func (g *Shared) modules(rel string) bool {
	if g.Worktree == "" {
		return false
	}
	parts := strings.Split(rel, "/")
	return rel == "modules" || len(parts) == 3 && parts[0] == "worktrees" && parts[1] != g.Worktree && parts[2] == "modules"
}

// onlyGit hides what is no part of a repository, or of other work trees' submodules, and
// looks at the rest.
func (w *walk) onlyGit(git *Shared, look func(name, inside string, d fs.DirEntry) error) func(name, inside string, d fs.DirEntry) error {
	bare := path.Base(git.Target) != ".git"
	return func(name, inside string, d fs.DirEntry) error {
		rel := strings.TrimPrefix(inside, git.Target+"/")
		if !d.IsDir() || !git.modules(rel) && (!bare || strings.Contains(rel, "/") || slices.Contains(gitDirs, rel)) {
			return look(name, inside, d)
		}
		if !w.copied {
			w.hide = append(w.hide, inside)
		}
		return fs.SkipDir
	}
}
