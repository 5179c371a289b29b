package setup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
)

// bases lists directories that every host has. The root is built in a tmpfs that is mounted on one
// of them, in the jail's own mount namespace, where the host does not see it.
var bases = []string{"/tmp", "/mnt", "/run", "/var"}

// builder builds a root.
type builder struct {
	r        *Request
	base     string // the tmpfs that receives the sandbox's writes
	root     string // where the root is built
	overlays int    // number of overlays so far

	layers Layers
}

// build builds the root and makes it the root of this process.
func (r *Request) build(trees []int) (refused bool, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return false, fmt.Errorf("private mounts: %w", err)
	}
	b := &builder{r: r}
	// The host's paths are looked up before the base covers any of them.
	for i, t := range r.Trees {
		if trees[i] >= 0 {
			continue
		}
		if trees[i], err = openTree(t.Source); err != nil {
			return false, fmt.Errorf("show %s: %w", t.Source, err)
		}
	}
	if err := b.makeBase(); err != nil {
		return false, err
	}
	for i, t := range r.Trees {
		if err := b.place(t, trees[i]); err != nil {
			return false, fmt.Errorf("show %s: %w", t.Target, err)
		}
	}
	for _, l := range r.Links {
		if err := b.link(l); err != nil {
			return false, fmt.Errorf("link %s: %w", l.Path, err)
		}
	}
	if err := b.cover(); err != nil {
		return true, err
	}
	if err := b.system(); err != nil {
		return false, err
	}
	if err := b.keepLayers(); err != nil {
		return false, err
	}
	return false, b.enter()
}

// openTree opens a copy of the mounts at a path.
func openTree(path string) (int, error) {
	return unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
}

// makeBase mounts the tmpfs that receives all writes of the sandbox. Its size and its number of
// files are the limits of the disk.
func (b *builder) makeBase() error {
	options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=711", b.r.Limits.DiskBytes, b.r.Limits.DiskInodes)
	var errs []error
	for _, base := range bases {
		err := unix.Mount("tmpfs", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
		if err == nil {
			b.base, b.root = base, filepath.Join(base, "root")
			return errors.Join(os.Mkdir(b.root, 0o755), os.Mkdir(filepath.Join(base, "empty.d"), 0o555), makeFile(filepath.Join(base, "empty"), 0o444))
		}
		errs = append(errs, fmt.Errorf("%s: %w", base, err))
	}
	return fmt.Errorf("mount a tmpfs: %w", errors.Join(errs...))
}

// makeFile creates an empty file.
func makeFile(path string, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	return f.Close()
}

// inside returns the location of a sandbox's path while the root is built.
func (b *builder) inside(path string) (string, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return "", fmt.Errorf("%q is not a clean absolute path", path)
	}
	return filepath.Join(b.root, path), nil
}

// place mounts one tree.
func (b *builder) place(t Tree, fd int) error {
	defer unix.Close(fd)
	target, err := b.inside(t.Target)
	if err != nil {
		return err
	}
	if t.Place {
		if err := b.makePlace(t, target); err != nil {
			return err
		}
	}
	switch {
	case t.Volume:
		// A volume is no part of the sandbox's files, so its mount point is not one of its changes.
		b.layers.Points = append(b.layers.Points, strings.TrimPrefix(t.Target, "/"))
		return moveTo(fd, target, t.ReadOnly)
	case t.Name != "":
		return b.placeNamed(t, fd, target)
	case t.File && t.Copy:
		return b.copyFile(fmt.Sprintf("/proc/self/fd/%d", fd), target)
	case t.File:
		return moveTo(fd, target, true)
	}
	return b.overlay(fd, target)
}

// placeNamed mounts a single file of a directory that is itself not shown.
func (b *builder) placeNamed(t Tree, fd int, target string) error {
	dir := filepath.Join(b.base, "d"+strconv.Itoa(b.overlays+1))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := b.overlay(fd, dir); err != nil {
		return err
	}
	path := filepath.Join(dir, t.Name)
	if t.Copy {
		return b.copyFile(path, target)
	}
	return bindReadOnly(path, target)
}

// makePlace creates the mount point of a tree. Nothing may exist there.
func (b *builder) makePlace(t Tree, target string) error {
	if err := b.parents(t.Target); err != nil {
		return err
	}
	if t.Copy {
		return nil
	}
	if t.File {
		return makeFile(target, 0o444)
	}
	return os.Mkdir(target, 0o755)
}

// parents creates the directories above a sandbox's path. It follows no link, because a link in the
// image could lead out of the root while the root is built.
func (b *builder) parents(path string) error {
	dir := b.root
	for name := range strings.SplitSeq(strings.Trim(filepath.Dir(path), "/"), "/") {
		if name == "" {
			continue
		}
		dir = filepath.Join(dir, name)
		info, err := os.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is not a directory", strings.TrimPrefix(dir, b.root))
		}
	}
	return nil
}

// overlay shows a directory copy-on-write.
func (b *builder) overlay(fd int, target string) error {
	b.overlays++
	name := strconv.Itoa(b.overlays)
	lower, upper, work := filepath.Join(b.base, "l"+name), filepath.Join(b.base, "u"+name), filepath.Join(b.base, "w"+name)
	for _, dir := range []string{lower, upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := moveTo(fd, lower, true); err != nil {
		return err
	}
	// The top directory of an overlay has the attributes of the upper one.
	if err := copyAttributes(lower, upper); err != nil {
		return err
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", lower, upper, work)
	// In a user namespace, an overlay stores its marks in "user." attributes. If the kernel's tmpfs
	// does not support them, the overlay stores no marks. A virtual machine has no user namespace,
	// and the tmpfs of its kernel may only support the attributes of root, without which an overlay
	// cannot replace a directory.
	err := error(unix.EINVAL)
	if !b.r.Own {
		err = mountOverlay(target, options+",userxattr")
	}
	if errors.Is(err, unix.EINVAL) {
		err = mountOverlay(target, options)
	}
	if err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	b.describe(upper, target)
	return nil
}

func mountOverlay(target, options string) error {
	return unix.Mount("overlay", target, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options)
}

// moveTo mounts a tree such that set-id bits and devices in it have no effect.
func moveTo(fd int, target string, readOnly bool) error {
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr); err != nil {
		return fmt.Errorf("restrict it: %w", err)
	}
	return unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// copyAttributes gives a directory the permissions, owner and times of another. An owner without an
// ID in the sandbox is skipped.
func copyAttributes(source, target string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := os.Chown(target, int(stat.Uid), int(stat.Gid)); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
			return err
		}
	}
	if err := os.Chmod(target, info.Mode()&(os.ModePerm|os.ModeSticky)); err != nil {
		return err
	}
	return os.Chtimes(target, info.ModTime(), info.ModTime())
}

// copyFile copies a file, because a single file cannot have an overlay.
func (b *builder) copyFile(path, target string) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if b.r.Users {
		err = errors.Join(err, to.Chown(engine.UserID, engine.UserID))
	}
	err = errors.Join(err, to.Chmod(info.Mode().Perm()), to.Close(), os.Chtimes(target, info.ModTime(), info.ModTime()))
	if err != nil {
		return err
	}
	return b.describeCopy(target)
}

// link creates a symbolic link.
func (b *builder) link(l engine.Link) error {
	path, err := b.inside(l.Path)
	if err != nil {
		return err
	}
	if err := b.parents(l.Path); err != nil {
		return err
	}
	return os.Symlink(l.Target, path)
}

// enter makes the root this process's root and detaches the host's.
func (b *builder) enter() error {
	if err := unix.Chdir(b.root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	// The host's root is now mounted on top of the new one. Once it is unmounted, no path leads to
	// it.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach the host's root: %w", err)
	}
	return unix.Chdir("/")
}
