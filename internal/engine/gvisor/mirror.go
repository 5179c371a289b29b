package gvisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// node is a path that a root has besides those of the template: a directory on the way, or at its
// end a mount point or a link.
type node struct {
	below map[string]*node
	leaf  bool
	file  bool   // the mount point of a file
	link  string // the target of a link
}

// showRoot shows the template's directory at root. The template is shared by all sandboxes and is
// never written. So additional paths are made in a small file system of this sandbox's own, in
// which the template's files are shown one by one: only the directories on the way to an additional
// path are made anew.
func (r *bootRequest) showRoot(root string) error {
	if len(r.Mounts)+len(r.Links) == 0 {
		return bindReadOnly(r.Root.Dir, root)
	}
	places := &node{}
	for _, m := range r.Mounts {
		for _, b := range r.Root.Binds {
			if m.Target == b.Target || strings.HasPrefix(m.Target, b.Target+"/") || strings.HasPrefix(b.Target, m.Target+"/") {
				return fmt.Errorf("%s is a place of the template's", m.Target)
			}
		}
		info, err := os.Stat(m.Source)
		if err != nil {
			return fmt.Errorf("show %s: %w", m.Source, err)
		}
		if err := places.add(m.Target, node{leaf: true, file: !info.IsDir()}); err != nil {
			return err
		}
	}
	for _, l := range r.Links {
		if err := places.add(l.Path, node{leaf: true, link: l.Target}); err != nil {
			return err
		}
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=1m,nr_inodes=8k"); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	if err := places.make(r.Root.Dir, root); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, root, 0, attr); err != nil {
		return fmt.Errorf("make the root read-only: %w", err)
	}
	return nil
}

func (n *node) add(path string, leaf node) error {
	if _, err := cleanTarget("/", path); err != nil || path == "/" {
		return errors.Join(fmt.Errorf("no place for a mount: %q", path), err)
	}
	parts := strings.Split(path[1:], "/")
	for i, part := range parts {
		if n.leaf {
			return fmt.Errorf("%s is below another mount", path)
		}
		if n.below == nil {
			n.below = map[string]*node{}
		}
		next := n.below[part]
		if next == nil {
			next = &node{}
			n.below[part] = next
		} else if i == len(parts)-1 {
			return fmt.Errorf("%s is taken by another mount", path)
		}
		n = next
	}
	*n = leaf
	return nil
}

// make fills a new directory with what source has, and with the places. An empty
// source has nothing.
func (n *node) make(source, target string) error {
	if source != "" {
		entries, err := os.ReadDir(source)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if next := n.below[e.Name()]; next != nil {
				if next.leaf || !e.IsDir() {
					return fmt.Errorf("%s is a place of the template's", filepath.Join(source, e.Name()))
				}
				continue
			}
			if err := show(source, target, e); err != nil {
				return err
			}
		}
	}
	for name, next := range n.below {
		if err := next.place(source, target, name); err != nil {
			return err
		}
	}
	if source == "" {
		return nil
	}
	return likeSource(source, target)
}

// place makes one place.
func (n *node) place(source, target, name string) error {
	at := filepath.Join(target, name)
	switch {
	case n.link != "":
		return os.Symlink(n.link, at)
	case n.file:
		return makeEmpty(at)
	}
	if err := os.Mkdir(at, 0o755); err != nil || n.leaf {
		return err
	}
	if source != "" {
		source = filepath.Join(source, name)
		if _, err := os.Lstat(source); errors.Is(err, os.ErrNotExist) {
			source = ""
		}
	}
	return n.make(source, at)
}

// show shows one entry of a template's directory in the new one.
func show(source, target string, e os.DirEntry) error {
	from, to := filepath.Join(source, e.Name()), filepath.Join(target, e.Name())
	switch mode := e.Type(); {
	case mode&os.ModeSymlink != 0:
		link, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(link, to)
	case mode.IsDir():
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
	case mode.IsRegular():
		if err := makeEmpty(to); err != nil {
			return err
		}
	default:
		return nil // a template has no devices, sockets or pipes
	}
	return bindReadOnly(from, to)
}

// likeSource gives a directory the permissions, the owner and the times of another.
func likeSource(source, target string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		// Without root there is one user, who has made both.
		if err := os.Chown(target, int(stat.Uid), int(stat.Gid)); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	if err := os.Chmod(target, info.Mode()&(os.ModePerm|os.ModeSticky)); err != nil {
		return err
	}
	return os.Chtimes(target, info.ModTime(), info.ModTime())
}
