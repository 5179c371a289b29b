package gvisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine/gvisor/owners"
	"github.com/crannog/crannog/internal/engine/linux/ocispec"
	"github.com/crannog/crannog/internal/engine/linux/rootpath"
)

// cover makes the paths that the policy hides or protects inaccessible. A hidden path is covered
// twice. The first cover is in the tree that gVisor's file server sees, so that not even a
// compromised kernel of the sandbox could read the file. The second is in the sandbox, where the
// cover cannot be written to or removed. An absent path has only the first cover: the guest removes
// the empty file in the sandbox, and no file below it in the overlay can reappear.
func (r *bootRequest) cover() error {
	if len(r.Hide)+len(r.Absent)+len(r.ReadOnly) == 0 {
		return nil
	}
	dir := r.OCI.Root.Path
	if r.Packed != "" {
		dir = r.Root.Dir // has the same paths
	}
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("root: %w", err)
	}
	defer root.Close()
	covered := make(map[string]bool)
	// Shorter paths come first, because a path below a hidden directory needs no cover.
	byLength := func(a, b string) int { return len(a) - len(b) }
	hide := slices.SortedFunc(slices.Values(slices.Concat(r.Hide, r.Absent)), byLength)
	for _, path := range hide {
		t, err := rootpath.Open(root, path, 0)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("hide %s: %w", path, err)
		}
		err = r.hide(t, covered, slices.Contains(r.Hide, path))
		t.Close()
		if err != nil {
			return fmt.Errorf("hide %s: %w", path, err)
		}
	}
	for _, path := range r.ReadOnly {
		// A protected link could be replaced, and programs would then find another file at the
		// path.
		t, err := rootpath.Open(root, path, unix.O_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) && slices.ContainsFunc(hide, func(h string) bool { return strings.HasPrefix(path, h+"/") }) {
			continue
		}
		if err != nil {
			return fmt.Errorf("protect %s: %w", path, err)
		}
		t.Close()
		if t.Link {
			return fmt.Errorf("protect %s: the path is a symbolic link; protect its target, or the directory that contains it", path)
		}
		if !covered[t.Inside] {
			covered[t.Inside] = true
			r.mountCover(owners.Cover{Path: t.Inside})
		}
	}
	return nil
}

// mountCover mounts a cover in the sandbox. A file that belongs to the user is covered by the
// sandbox's kernel, below the translation of owners, so that the sandbox's user can read a
// protected file with mode 0600. The files of a packed root are in no directory of the host, from
// which gVisor could mount them.
func (r *bootRequest) mountCover(c owners.Cover) {
	switch {
	case r.Packed != "" || r.Owners.Owns(c.Path):
		r.Owners.Covers = append(r.Owners.Covers, c)
	case c.Blank:
		r.OCI.Mounts = append(r.OCI.Mounts, ocispec.Blank(c.Path))
	default:
		r.OCI.Mounts = append(r.OCI.Mounts, ocispec.Cover(c.Path, filepath.Join(r.OCI.Root.Path, c.Path)))
	}
}

// hide covers one path in the file server's tree. If permanent is set, it also mounts the cover in
// the sandbox.
func (r *bootRequest) hide(t rootpath.Location, covered map[string]bool, permanent bool) error {
	if covered[t.Inside] {
		return nil
	}
	covered[t.Inside] = true
	empty := filepath.Join(r.SandboxDir, "empty")
	if t.Directory {
		empty = filepath.Join(r.SandboxDir, "empty.d")
		if err := os.Mkdir(empty, 0o555); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	} else if err := makeEmpty(empty); err != nil {
		return err
	}
	if err := showAt(empty, t.File); err != nil {
		return err
	}
	if permanent {
		r.mountCover(owners.Cover{Path: t.Inside, Blank: t.Directory})
	}
	return nil
}

// showAt mounts source read-only over exactly the file that was opened. A path could lead to
// another file by now.
func showAt(source string, target *os.File) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("copy the mount of %s: %w", source, err)
	}
	defer unix.Close(tree)
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, attr); err != nil {
		return fmt.Errorf("make the cover read-only: %w", err)
	}
	return unix.MoveMount(tree, "", int(target.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// makeEmpty creates an empty file if it does not exist.
func makeEmpty(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	return f.Close()
}
