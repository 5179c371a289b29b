package setup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine/linux/rootpath"
)

// cover makes the paths that the policy hides or protects inaccessible. It mounts something over
// them, and no program in the sandbox has the right to change mounts.
func (b *builder) cover() error {
	root, err := os.OpenFile(b.root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	covered := map[string]bool{}
	// Shorter paths come first, because a path below a hidden directory needs no mount.
	byLength := func(a, b string) int { return len(a) - len(b) }
	hidden := slices.SortedFunc(slices.Values(slices.Concat(b.r.Hide, b.r.Absent)), byLength)
	for _, path := range hidden {
		t, err := rootpath.Open(root, path, 0)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err == nil && !covered[t.Inside] {
			covered[t.Inside] = true
			err = b.hide(t, !slices.Contains(b.r.Hide, path))
		}
		t.Close()
		if err != nil {
			return fmt.Errorf("hide %s: %w", path, err)
		}
	}
	for _, path := range b.r.ReadOnly {
		// A protected link could be replaced, and its path would then lead to another file.
		t, err := rootpath.Open(root, path, unix.O_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) && slices.ContainsFunc(hidden, func(h string) bool { return strings.HasPrefix(path, h+"/") }) {
			continue
		}
		if err == nil && t.Link {
			err = errors.New("the path is a symbolic link; protect its target, or the directory that contains it")
		}
		if err == nil && !covered[t.Inside] {
			covered[t.Inside] = true
			err = b.protect(t)
		}
		t.Close()
		if err != nil {
			return fmt.Errorf("protect %s: %w", path, err)
		}
	}
	return nil
}

// hide covers a path with an empty file or directory. If it must be absent, hide instead deletes it
// in the sandbox's overlay.
func (b *builder) hide(t rootpath.Location, absent bool) error {
	if absent {
		b.layers.Absent = append(b.layers.Absent, strings.TrimPrefix(t.Inside, "/"))
		return os.RemoveAll(filepath.Join(b.root, t.Inside))
	}
	empty := "empty"
	if t.Directory {
		empty = "empty.d"
	}
	return b.showAt(unix.AT_FDCWD, filepath.Join(b.base, empty), t)
}

// protect mounts a path read-only over itself.
func (b *builder) protect(t rootpath.Location) error { return b.showAt(int(t.File.Fd()), "", t) }

// showAt mounts the file at a path read-only over exactly the file that was opened. A path could
// lead to another file by now.
func (b *builder) showAt(dir int, path string, t rootpath.Location) error {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE)
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	tree, err := unix.OpenTree(dir, path, flags)
	if err != nil {
		return fmt.Errorf("copy its mount: %w", err)
	}
	defer unix.Close(tree)
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr); err != nil {
		return fmt.Errorf("make it read-only: %w", err)
	}
	return unix.MoveMount(tree, "", int(t.File.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}
