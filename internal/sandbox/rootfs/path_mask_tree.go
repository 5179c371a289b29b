package rootfs

import (
	"cmp"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// userDirs are the paths inside that the default user may write. All others belong to root. If a
// policy lists the writable paths, no program runs as root.
var userDirs = []string{"/home/user", "/tmp", "/var/tmp", sandbox.WorkspaceDir}

// alwaysVisible are paths that are created when the sandbox starts, or that its own programs need.
// They contain nothing of the host, so no policy hides them.
var alwaysVisible = []string{"/.crannog", "/dev", "/proc", "/sys", "/run", "/tmp", "/var", "/root", "/home", sandbox.WorkspaceDir}

// onList reports whether a list covers a path as a whole, because it has the path or one above it,
// or in part, because it has a path below it.
func onList(list []string, name string) (whole, part bool) {
	for _, l := range list {
		switch {
		case l == "/" || l == name || strings.HasPrefix(name, l+"/"):
			return true, true
		case strings.HasPrefix(l, name+"/"):
			part = true
		}
	}
	return false, part
}

// hasWriteList reports whether a policy lists the writable paths, in which case no user inside may
// be root.
func hasWriteList(files policy.Files) bool { return !slices.Contains(files.Write, "/") }

// maskTree hides paths that a policy excludes from reading, and makes paths read-only that it
// excludes from writing. Everything but the user's own directories belongs to root.
func (c *Masks) maskTree(image engine.Image, files policy.Files) error {
	readable := files.Read
	if !slices.Contains(readable, "/") {
		// Writable paths are readable. If everything is writable, users may be root, but some files
		// may still be hidden.
		readable = slices.Concat(readable, slices.DeleteFunc(slices.Clone(files.Write), func(w string) bool { return w == "/" }))
	}
	if err := c.maskUnread(image, "/", readable); err != nil || !hasWriteList(files) {
		return err
	}
	for _, dir := range userDirs {
		switch whole, part := onList(files.Write, dir); {
		case part && !whole:
			// The whole directory is the user's, and a mount can take rights away but not give any.
			return fault.Newf(fault.Unsupported, "policy_writes_part",
				"filesystem.write lists a part of %s, which can only be writable as a whole", dir).
				WithHint("list " + dir + " itself, or nothing of it")
		case !whole:
			c.readOnly = append(c.readOnly, dir)
		}
	}
	return nil
}

// unwritableDirs returns some directories of a sandbox with a write list in which no program may
// create a file.
func unwritableDirs(files policy.Files) (list []string) {
	for _, dir := range []string{"/usr", "/etc"} {
		if whole, _ := onList(files.Write, dir); !whole {
			list = append(list, dir)
		}
	}
	return list
}

// checkFileRules refuses file rules for an image whose files an engine does not expose as a
// directory. The server cannot list the files, and the sandbox's only user may own some of its
// directories.
func checkFileRules(image engine.Image, files policy.Files, info engine.Info) error {
	if image.HostView != nil || image.Kind() == "" {
		return nil
	}
	name := ""
	switch {
	case hasWriteList(files):
		name = "filesystem.write"
	case !slices.Contains(files.Read, "/"):
		name = "filesystem.read"
	default:
		return nil
	}
	return fault.Newf(fault.Unsupported, "policy_unsupported", "the engine %s cannot apply %s, which lists other paths than /", info.Name, name).
		WithHint("use another engine, which crannog engines lists, or a level other than strict")
}

// maskUnread hides the entries of a directory that a list of readable paths does not cover. It
// descends only into directories that contain a listed path.
func (c *Masks) maskUnread(image engine.Image, dir string, list []string) error {
	if whole, _ := onList(list, dir); whole {
		return nil
	}
	names, err := listDir(image, dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		inside := path.Join(dir, name)
		whole, part := onList(list, inside)
		switch {
		case whole || slices.Contains(alwaysVisible, inside):
		case part:
			if err := c.maskUnread(image, inside, list); err != nil {
				return err
			}
		default:
			c.hide = append(c.hide, inside)
		}
	}
	return nil
}

// listDir returns the entries of a directory of a template or an image. It omits symbolic links,
// because their targets are hidden themselves.
func listDir(image engine.Image, dir string) ([]string, error) {
	view := image.View()
	top, rel := view.Dir, strings.TrimPrefix(dir, "/")
	for _, b := range view.Binds {
		if rest, below := strings.CutPrefix(dir, b.Target); below && (rest == "" || rest[0] == '/') {
			top, rel = b.Source, strings.TrimPrefix(rest, "/")
		}
	}
	// The author of an image chose its links, which must not make the server list directories of
	// the host.
	root, err := os.OpenRoot(top)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	d, err := root.Open(cmp.Or(rel, "."))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	var names []string
	for _, e := range entries {
		if e.Type()&os.ModeSymlink == 0 {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
