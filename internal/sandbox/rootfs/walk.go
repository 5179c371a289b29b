package rootfs

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
)

// walk searches a workspace for files that a policy hides or makes read-only, and for git
// repositories.
type walk struct {
	*Masks
	root         string // the workspace or a mount, on the host
	inside       string // its path inside
	match        policy.Matcher
	copied       bool
	fixed        map[string]bool // read-only directories that are not below another one
	omitted      []string        // hidden files that are missing in a copy
	repositories []string        // directories with a .git, by their path inside
	// throughLinks are the directories that were entered through links, each with the path under
	// which the policy rules apply to it.
	throughLinks map[string]bool
}

// walk prepares the search of a directory of the host. The limits apply to all searched directories
// together.
func (c *Masks) walk(root, inside string, files policy.Files) *walk {
	return &walk{
		Masks: c, root: root, inside: inside, match: files.Matcher(), copied: files.Workspace == workspaceCopy,
		throughLinks: map[string]bool{}, fixed: map[string]bool{},
	}
}

// anyFile stands for any file name in a directory. It is neither a valid file name nor part of a
// pattern.
const anyFile = "/\x00"

// walkDir calls visit for each file below a directory of the host. inside is the path of the
// directory inside.
func (w *walk) walkDir(dir, inside string, visit func(name, inside string, d fs.DirEntry) error) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission):
			// The file has vanished, or this user may not read it. The sandbox cannot read it
			// either, because its files are served with this user's permissions.
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case err != nil:
			return err
		case name == dir:
			return nil
		}
		if w.seen++; w.seen > maxCheckedFiles {
			return fault.Newf(fault.Exhausted, "workspace_too_large", "the workspace and the mounts have more than %d files to check against the policy", maxCheckedFiles).
				WithHint("use a smaller directory as --workspace")
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		return visit(name, path.Join(inside, filepath.ToSlash(rel)), d)
	})
}

// maskOf returns the mask of a path. A pattern that matches everything below a directory covers the
// directory too, because otherwise new files could be created in it.
func (w *walk) maskOf(inside string, d fs.DirEntry) (hide, readOnly bool) {
	below := inside
	if d.IsDir() {
		below += anyFile
	}
	if w.match.Denied(inside) || w.match.Denied(below) {
		return true, false
	}
	return false, w.match.ReadOnly(inside) || w.match.ReadOnly(below)
}

// check checks one file against the policy. A directory that is masked as a whole is not entered.
func (w *walk) check(name, inside string, d fs.DirEntry) error {
	var skip error
	if d.IsDir() {
		skip = fs.SkipDir
	}
	link := d.Type()&fs.ModeSymlink != 0
	hide, readOnly := w.maskOf(inside, d)
	// Files in a read-only directory need no mount of their own, and no link in it can be replaced.
	readOnly = readOnly && !w.belowReadOnly(inside)
	if path.Base(inside) == ".git" && !hide {
		w.repositories = append(w.repositories, path.Dir(inside))
	}
	switch {
	case hide && link:
		return w.hideTarget(name)
	case hide:
		if w.copied { // the copy does not contain it
			w.omitted = append(w.omitted, inside)
		} else {
			w.absent = append(w.absent, inside)
		}
		return skip
	case readOnly && link:
		return readOnlyLink(inside)
	case readOnly:
		// Files below a protected directory are checked too, because they may be hidden.
		w.readOnly, w.fixed[inside] = append(w.readOnly, inside), true
	case link:
		return w.follow(name, inside)
	}
	if d.Type().IsRegular() {
		w.files.add(inside)
	}
	return nil
}

// belowReadOnly reports whether a path is below a read-only directory.
func (w *walk) belowReadOnly(inside string) bool {
	for dir := path.Dir(inside); len(dir) > 1; dir = path.Dir(dir) {
		if w.fixed[dir] {
			return true
		}
	}
	return false
}

func readOnlyLink(inside string) error {
	return fault.Newf(fault.Unsupported, "policy_protects_link", "the policy makes %s read-only, but it is or contains a symbolic link that could be replaced inside", inside).
		WithHint("list it under filesystem.protect instead, which excludes its changes from exports, or make the target of the link read-only")
}

// target returns the file of the workspace that a link leads to, if there is one.
func (w *walk) target(name string) (real, inside string, ok bool) {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return "", "", false // the link is broken on the host and inside
	}
	rel, err := filepath.Rel(w.root, real)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", "", false // files outside the workspace do not exist inside
	}
	return real, path.Join(w.inside, filepath.ToSlash(rel)), true
}

// hideTarget hides the target of a hidden link, if the target is inside.
func (w *walk) hideTarget(name string) error {
	if _, inside, ok := w.target(name); ok {
		w.hideOnce(inside)
	}
	return nil
}

// hideOnce adds a path to the absent ones, unless it is there already.
func (w *walk) hideOnce(inside string) {
	if !slices.Contains(w.absent, inside) {
		w.absent = append(w.absent, inside)
	}
}

// follow checks the target directory of a link if the policy has paths that lead through the link.
// Files are hidden at their real location.
func (w *walk) follow(name, inside string) error {
	rest, leads := w.match.Behind(inside)
	if !leads {
		return nil
	}
	dir, _, ok := w.target(name)
	key := dir + "\x00" + rest
	if !ok || w.throughLinks[key] {
		return nil
	}
	w.throughLinks[key] = true
	return w.walkDir(dir, inside, func(name, inside string, d fs.DirEntry) error {
		hide, readOnly := w.maskOf(inside, d)
		switch {
		case hide:
			if err := w.hideTarget(name); err != nil || !d.IsDir() {
				return err
			}
			return fs.SkipDir
		case readOnly:
			return readOnlyLink(inside)
		case d.Type()&fs.ModeSymlink != 0:
			return w.follow(name, inside)
		}
		return nil
	})
}
