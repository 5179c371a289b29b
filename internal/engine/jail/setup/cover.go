package setup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// cover puts what the policy hides and protects out of reach. A cover is a mount: no
// program inside can remove it, since none has the right to change mounts.
func (b *builder) cover() error {
	root, err := os.OpenFile(b.root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	covered := map[string]bool{}
	// Shorter paths come first: a path below a hidden directory needs no cover.
	byLength := func(a, b string) int { return len(a) - len(b) }
	hidden := slices.SortedFunc(slices.Values(slices.Concat(b.r.Hide, b.r.Absent)), byLength)
	for _, path := range hidden {
		t, err := openInside(root, path, 0)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err == nil && !covered[t.inside] {
			covered[t.inside] = true
			err = b.hide(t, !slices.Contains(b.r.Hide, path))
		}
		t.close()
		if err != nil {
			return fmt.Errorf("hide %s: %w", path, err)
		}
	}
	for _, path := range b.r.ReadOnly {
		// A link itself would stay replaceable, and with it what programs find at the path.
		t, err := openInside(root, path, unix.O_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) && slices.ContainsFunc(hidden, func(h string) bool { return strings.HasPrefix(path, h+"/") }) {
			continue
		}
		if err == nil && t.link {
			err = errors.New("it is a symbolic link; protect what it points to, or the directory that it is in")
		}
		if err == nil && !covered[t.inside] {
			covered[t.inside] = true
			err = b.protect(t)
		}
		t.close()
		if err != nil {
			return fmt.Errorf("protect %s: %w", path, err)
		}
	}
	return nil
}

// hide covers one place with an empty file or directory, or removes it from the
// sandbox's overlay: nothing of it is then left to uncover.
func (b *builder) hide(t target, absent bool) error {
	if absent {
		return os.RemoveAll(filepath.Join(b.root, t.inside))
	}
	empty := "empty"
	if t.directory {
		empty = "empty.d"
	}
	return b.showAt(unix.AT_FDCWD, filepath.Join(b.base, empty), t)
}

// protect mounts a place on itself, read-only.
func (b *builder) protect(t target) error { return b.showAt(int(t.file.Fd()), "", t) }

// showAt mounts what is at a path read-only on the very file that was opened: a path
// could lead elsewhere by now.
func (b *builder) showAt(dir int, path string, t target) error {
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
	return unix.MoveMount(tree, "", int(t.file.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// target is a place in the sandbox's root.
type target struct {
	file      *os.File
	inside    string // its path there, without links
	directory bool
	link      bool
}

func (t target) close() {
	if t.file != nil {
		_ = t.file.Close() // nothing was written to it
	}
}

// served are places inside that are mounted later: a cover would cover nothing.
var served = []string{"/proc", "/sys", "/dev"}

// openTries is how often a place is looked up again that was not found because of a race.
const openTries = 1000

// openInside finds a path as a program in the sandbox would: a link in a workspace leads to the
// sandbox's files and never to the host's.
func openInside(root *os.File, path string, flags uint64) (target, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
		return target{}, errors.New("not a clean absolute path below the root")
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | flags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(int(root.Fd()), path, &how)
	// The kernel gives up on a ".." while anything on the machine is renamed or mounted.
	for n := 0; n < openTries && (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)); n++ {
		fd, err = unix.Openat2(int(root.Fd()), path, &how)
	}
	if err != nil {
		return target{}, err
	}
	t := target{file: os.NewFile(uintptr(fd), path)}
	info, err := t.file.Stat()
	if err != nil {
		return t, err
	}
	t.directory, t.link = info.IsDir(), info.Mode()&os.ModeSymlink != 0
	whole, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return t, err
	}
	base, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", root.Fd()))
	if err != nil {
		return t, err
	}
	t.inside = strings.TrimPrefix(whole, base)
	if t.inside == whole || !filepath.IsAbs(t.inside) ||
		slices.ContainsFunc(served, func(s string) bool { return t.inside == s || strings.HasPrefix(t.inside, s+"/") }) {
		return t, errors.New("not a place in the sandbox's files")
	}
	return t, nil
}
