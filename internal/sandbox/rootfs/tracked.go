package rootfs

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/gitrepo/gitfile"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
)

// findTracked finds the hidden files that git tracks. Masking such a file is not enough, because
// its content is in each commit that contains it. git is the repository of the workspace, if it
// lies elsewhere.
func (w *walk) findTracked(files policy.Files, git *sandbox.Shared) error {
	hidden := slices.Concat(w.absent, w.omitted)
	if len(w.repositories) == 0 || len(files.Deny) == 0 || len(hidden) == 0 && files.Tracked == policy.TrackedAllow {
		return nil
	}
	root, err := os.OpenRoot(w.root)
	if err != nil {
		return err
	}
	defer root.Close()
	slices.Sort(w.repositories)
	for _, top := range slices.Compact(w.repositories) {
		var at *mountedFile
		if git != nil && top == sandbox.WorkspaceDir {
			at = &mountedFile{dir: git.Source, inside: git.Target, name: indexName(git)}
		} else if at = w.indexOf(root, top); at == nil {
			if at = w.sharedIndex(root, top, git); at == nil {
				continue
			}
		}
		r, err := w.tracked(at, top, hidden)
		if err != nil {
			return err
		}
		if r.Tracked == 0 {
			continue
		}
		switch files.Tracked {
		case policy.TrackedAllow:
		case policy.TrackedHide:
			r.Without = true
			if git != nil && top == sandbox.WorkspaceDir {
				w.hideOnce(path.Join(sandbox.WorkspaceDir, sandbox.GitDir))
				w.hideOnce(git.Target)
			} else if at.dir != w.root {
				w.hideOnce(path.Join(top, sandbox.GitDir))
				w.hideOnce(path.Join(at.inside, path.Dir(at.name)))
			} else if err := w.hideRepository(root, top); err != nil {
				return err
			}
		default:
			return hidesTracked(r)
		}
		w.repos = append(w.repos, r)
	}
	return nil
}

// hidesTracked returns the error for a repository that tracks hidden files, and names them.
func hidesTracked(r sandbox.Repo) error {
	names := r.Names[:min(len(r.Names), 5)]
	list := strings.Join(names, ", ")
	if more := r.Tracked - len(names); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fault.Newf(fault.Denied, "policy_hides_tracked",
		"the policy hides files that git tracks, and their contents are in the history of %s: %s", r.Top, list).
		WithHint("filesystem.tracked is deny: set it to hide, which starts without the repository, or to allow, which shows its history; " +
			"or remove the files from the repository (git rm --cached, and from its history if they contain secrets)")
}

// hideRepository hides the repository of a directory with all its objects, so that git does not
// work there.
func (w *walk) hideRepository(root *os.Root, top string) error {
	relative := strings.TrimPrefix(strings.TrimPrefix(top, w.inside), "/")
	dir, ok := gitDir(root, relative)
	if !ok {
		return nil
	}
	repository := gitfile.Common(dir)
	if text, err := gitfile.Read(root, path.Join(dir, "commondir"), gitfile.MaxLink); err == nil {
		if to := path.Join(dir, strings.TrimRight(string(text), "\r\n")); filepath.IsLocal(to) {
			repository = to // a linked work tree names its repository in this file
		}
	}
	for _, name := range []string{path.Join(relative, ".git"), dir, repository} {
		real, inside, ok := w.target(filepath.Join(w.root, name))
		if !ok {
			return fault.Newf(fault.Denied, "policy_hides_tracked", "the policy hides the repository of %s, and %s cannot be hidden", top, name)
		}
		if real != w.root {
			w.hideOnce(inside)
		}
	}
	return nil
}

// mountedFile is a file in a host directory that is mounted somewhere inside.
type mountedFile struct{ dir, inside, name string }

// indexOf returns the index of a directory's repository, if it is in the same tree.
func (w *walk) indexOf(root *os.Root, top string) *mountedFile {
	relative := strings.TrimPrefix(strings.TrimPrefix(top, w.inside), "/")
	dir, ok := gitDir(root, relative)
	if !ok {
		return nil
	}
	return &mountedFile{dir: w.root, inside: w.inside, name: path.Join(dir, "index")}
}

// sharedIndex returns the index of a submodule of a linked work tree. The submodule's repository is
// inside the repository that the work tree shares.
func (w *walk) sharedIndex(root *os.Root, top string, git *sandbox.Shared) *mountedFile {
	if git == nil {
		return nil
	}
	relative := strings.TrimPrefix(strings.TrimPrefix(top, w.inside), "/")
	text, err := gitfile.Read(root, path.Join(relative, ".git"), gitfile.MaxLink)
	if err != nil {
		return nil
	}
	to, ok := strings.CutPrefix(strings.TrimRight(string(text), "\r\n"), "gitdir: ")
	if !ok {
		return nil
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(w.root, relative, to)
	}
	if to, err = filepath.EvalSymlinks(to); err != nil {
		return nil
	}
	name, below := strings.CutPrefix(to, git.Source+"/")
	if !below {
		return nil
	}
	return &mountedFile{dir: git.Source, inside: git.Target, name: path.Join(name, "index")}
}

// indexName returns the path of a work tree's index in its repository.
func indexName(g *sandbox.Shared) string {
	if g.Worktree == "" {
		return "index"
	}
	return path.Join("worktrees", g.Worktree, "index")
}

// tracked finds the hidden files that the repository of a directory tracks.
func (w *walk) tracked(at *mountedFile, top string, hidden []string) (sandbox.Repo, error) {
	r := sandbox.Repo{Top: top}
	root, err := os.OpenRoot(at.dir)
	if err != nil {
		return r, err
	}
	defer root.Close()
	index, err := gitfile.ReadIndex(root, at.name)
	if err != nil || index == nil {
		return r, err
	}
	r.Index = path.Join(at.inside, at.name)
	for _, h := range hidden {
		if rest, below := strings.CutPrefix(h, top+"/"); below {
			r.Hidden = append(r.Hidden, rest)
		}
	}
	hides := sandbox.HiddenBelow(r.Hidden)
	used := map[string]bool{}
	for i := range index.Entries {
		name := index.Entries[i].Name
		if i > 0 && index.Entries[i-1].Name == name {
			continue // another side of a merge conflict
		}
		h := hides(name)
		if used[h] = true; h == "" && !w.match.Denied(path.Join(top, name)) {
			continue
		}
		if r.Tracked++; r.Tracked <= sandbox.MaxNamed {
			r.Names = append(r.Names, name)
		}
	}
	r.Hidden = slices.DeleteFunc(r.Hidden, func(h string) bool { return !used[h] })
	return r, nil
}

// gitDir returns the repository of a directory of the workspace, if it is in the workspace too.
// Both paths are relative to the workspace.
func gitDir(root *os.Root, top string) (string, bool) {
	name := path.Join(top, ".git")
	info, err := root.Stat(name)
	switch {
	case err != nil:
		return "", false
	case info.IsDir():
		return name, true
	}
	text, err := gitfile.Read(root, name, gitfile.MaxLink)
	if err != nil {
		return "", false
	}
	to, ok := strings.CutPrefix(string(text), "gitdir: ")
	if to = strings.TrimRight(to, "\r\n"); !ok || to == "" {
		return "", false
	}
	if !path.IsAbs(to) {
		to = path.Join(top, to)
	} else if to, err = filepath.Rel(root.Name(), to); err != nil {
		return "", false
	}
	return to, filepath.IsLocal(to)
}

// skips returns the hidden files for which the guest sets a mark in git's index, where the index is
// writable.
func (c *Masks) skips() []guest.Skip {
	fixed := sandbox.HiddenBelow(c.readOnly)
	var out []guest.Skip
	for _, r := range c.repos {
		if r.Without {
			continue
		}
		s := guest.Skip{Index: r.Index}
		for _, h := range r.Hidden {
			s.Paths = append(s.Paths, []byte(h))
		}
		if len(s.Paths) > 0 && fixed(r.Index) == "" {
			out = append(out, s)
		}
	}
	return out
}
