// Package pointer owns finding the repository of a work tree whose .git is a file that names a
// repository elsewhere: a linked work tree, a submodule, or a repository with --separate-git-dir.
//
// That file is not trusted, because the author of the tree wrote it: a tree from an archive could
// name ~/.ssh, which a sandbox would then see. A path is followed only if it leads to a repository
// that itself names the tree as its work tree.
package pointer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/gitrepo/gitfile"
)

// Repository is a repository outside of its work tree. Paths are the host's, absolute and without
// symbolic links.
type Repository struct {
	// Dir contains objects and references.
	Dir string
	// GitDir is the directory that the work tree's file names: Dir itself or, for a linked work
	// tree, a directory below it.
	GitDir string
	// Worktree is the name of the linked work tree in Dir, or "".
	Worktree string
	// Relative is set if the file contains a path relative to the work tree.
	Relative bool
	// Borrowed lists object directories that the repository uses and that are not below Dir.
	// Nothing in them confirms that it may use them.
	Borrowed []string
}

// CodeNotFollowed is the code of the error for a repository that is not followed.
const CodeNotFollowed = "git_not_followed"

// Limits of the files that are read of a repository.
const (
	maxLink   = 8 << 10
	maxConfig = 1 << 20
)

// Find returns the repository of a work tree, whose path has no symbolic links. It returns nil
// without an error if the tree has no repository, or one within the tree. If the named repository
// is not followed, the error is of kind Denied.
func Find(top string) (*Repository, error) {
	root, err := os.OpenRoot(top)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Lstat(".git")
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text, err := gitfile.Read(root, ".git", maxLink)
	if err != nil {
		return nil, notFollowed(top, "its .git cannot be read")
	}
	to, ok := strings.CutPrefix(string(text), "gitdir: ")
	if to = strings.TrimRight(to, "\r\n"); !ok || to == "" || strings.ContainsAny(to, "\x00\n") {
		return nil, notFollowed(top, "its .git names no repository")
	}
	r := &Repository{Relative: !filepath.IsAbs(to)}
	if r.GitDir, err = filepath.EvalSymlinks(absolute(top, to)); err != nil {
		return nil, notFollowed(top, "the repository that its .git names does not exist, or cannot be reached")
	}
	if below(r.GitDir, top) && !isLinked(r.GitDir) {
		return nil, nil
	}
	if err := r.check(top); err != nil {
		return nil, err
	}
	if below(r.Dir, top) {
		return nil, nil
	}
	r.Borrowed = borrowed(r.Dir)
	return r, nil
}

// isLinked reports whether a directory has a .git file that refers to a repository.
func isLinked(gitDir string) bool {
	_, err := os.Lstat(filepath.Join(gitDir, "commondir"))
	return err == nil
}

// check finds the repository of a work tree, and checks that it names the work tree.
func (r *Repository) check(top string) error {
	git, err := os.OpenRoot(r.GitDir)
	if err != nil {
		return notFollowed(top, "its .git does not name a readable directory")
	}
	defer git.Close()
	text, err := gitfile.Read(git, "commondir", maxLink)
	if errors.Is(err, fs.ErrNotExist) {
		r.Dir = r.GitDir
		if !isRepository(git) {
			return notFollowed(top, "its .git does not name a repository")
		}
		if !worksIn(git, r.GitDir, top) {
			return notFollowed(top, "the repository that its .git names does not name this directory as its work tree (core.worktree)")
		}
		return nil
	}
	if err != nil {
		return notFollowed(top, "the directory that its .git names cannot be read")
	}
	// Git creates linked work trees in one place only. If other places were accepted, a tree could
	// choose which directory of the host is used as the repository.
	dir := filepath.Dir(filepath.Dir(r.GitDir))
	real, err := filepath.EvalSymlinks(absolute(r.GitDir, line(text)))
	if err != nil || real != dir || filepath.Base(filepath.Dir(r.GitDir)) != "worktrees" {
		return notFollowed(top, "its .git does not name a work tree of a repository")
	}
	r.Dir, r.Worktree = dir, filepath.Base(r.GitDir)
	common, err := os.OpenRoot(dir)
	if err != nil {
		return notFollowed(top, "its repository cannot be read")
	}
	defer common.Close()
	if !isRepository(common) {
		return notFollowed(top, "its .git does not lead to a repository")
	}
	back, err := gitfile.Read(git, "gitdir", maxLink)
	if err != nil {
		return notFollowed(top, "the repository that its .git names does not name this directory")
	}
	file := absolute(r.GitDir, line(back))
	if real, err := filepath.EvalSymlinks(filepath.Dir(file)); err != nil || real != top || filepath.Base(file) != ".git" {
		return notFollowed(top, "the repository that its .git names has another directory for this work tree")
	}
	return nil
}

// isRepository reports whether a directory has the files by which git recognises a repository.
func isRepository(dir *os.Root) bool {
	for _, name := range []string{"objects", "refs"} {
		if info, err := dir.Lstat(name); err != nil || !info.IsDir() {
			return false
		}
	}
	text, err := gitfile.Read(dir, "HEAD", maxLink)
	head := line(text)
	return err == nil && (strings.HasPrefix(head, "ref: refs/") || isHash(head))
}

// isHash reports whether a text is an object ID.
func isHash(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

// worksIn reports whether a repository's own configuration names a work tree.
func worksIn(git *os.Root, dir, top string) bool {
	for _, name := range []string{"config", "config.worktree"} {
		text, err := gitfile.Read(git, name, maxConfig)
		if err != nil {
			continue
		}
		if to := worktreeOf(text); to != "" {
			if real, err := filepath.EvalSymlinks(absolute(dir, to)); err == nil && real == top {
				return true
			}
		}
	}
	return false
}

// maxBorrowed bounds the number of object directories.
const maxBorrowed = 16

// borrowed returns the object directories that a repository uses in addition to its own.
func borrowed(dir string) []string {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil
	}
	defer root.Close()
	text, err := gitfile.Read(root, "objects/info/alternates", maxLink)
	if err != nil {
		return nil
	}
	var out []string
	for one := range strings.Lines(string(text)) {
		to := strings.TrimRight(one, "\r\n")
		if to == "" || to[0] == '#' || len(out) == maxBorrowed {
			continue
		}
		if to = absolute(filepath.Join(dir, "objects"), to); !below(to, dir) {
			out = append(out, to)
		}
	}
	return out
}

// Borrows returns the object directories outside of a work tree that the repository in its .git
// uses.
func Borrows(top string) []string {
	dir := filepath.Join(top, ".git")
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return nil
	}
	var out []string
	for _, to := range borrowed(dir) {
		if !below(to, top) {
			out = append(out, to)
		}
	}
	return out
}

// notFollowed returns the error for a repository that is not followed.
func notFollowed(top, why string) error {
	return fault.Newf(fault.Denied, CodeNotFollowed, "git does not work inside: %s: %s", filepath.Join(top, ".git"), why).
		WithHint("git worktree repair fixes a work tree that was moved; --mount shows a repository that you choose")
}

// absolute resolves a path relative to a directory, unless it is absolute.
func absolute(dir, name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(dir, name)
}

// below reports whether a path is a directory or below it.
func below(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// line returns a text without its line end.
func line(text []byte) string { return strings.TrimRight(string(text), "\r\n") }
