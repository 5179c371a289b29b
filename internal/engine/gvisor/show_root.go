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

// node is a path that a root has in addition to the template's paths: an intermediate directory, or
// at the end of a path a mount point or link.
type node struct {
	below map[string]*node
	leaf  bool   // the end of a path
	file  bool   // the mount point of a file
	link  string // the target of a link
}

// showRoot shows the template's directory at root. All sandboxes share the template, which is never
// written. Additional paths are therefore created in a small tmpfs of this sandbox, in which the
// template's files are mounted one by one. Only the parent directories of additional paths are
// created again.
func (r *bootRequest) showRoot(root string) error {
	if len(r.Mounts)+len(r.Volumes)+len(r.Links) == 0 {
		return bindReadOnly(r.Root.Dir, root)
	}
	added := &node{} // the root of the additional paths
	for _, m := range r.Mounts {
		for _, b := range r.Root.Binds {
			if m.Target == b.Target || strings.HasPrefix(m.Target, b.Target+"/") || strings.HasPrefix(b.Target, m.Target+"/") {
				return fmt.Errorf("%s is used by the template", m.Target)
			}
		}
		info, err := os.Stat(m.Source)
		if err != nil {
			return fmt.Errorf("show %s: %w", m.Source, err)
		}
		if err := added.add(m.Target, node{leaf: true, file: !info.IsDir()}); err != nil {
			return err
		}
	}
	for _, v := range r.Volumes {
		if err := added.add(v.Target, node{leaf: true}); err != nil {
			return err
		}
	}
	for _, l := range r.Links {
		if err := added.add(l.Path, node{leaf: true, link: l.Target}); err != nil {
			return err
		}
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=1m,nr_inodes=8k"); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	if err := added.make(r.Root.Dir, root); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, root, 0, attr); err != nil {
		return fmt.Errorf("make the root read-only: %w", err)
	}
	return nil
}

// add adds a path below the root node.
func (n *node) add(path string, leaf node) error {
	if _, err := cleanTarget("/", path); err != nil || path == "/" {
		return errors.Join(fmt.Errorf("%q is not a valid path for a mount", path), err)
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
			return fmt.Errorf("%s is used by another mount", path)
		}
		n = next
	}
	*n = leaf
	return nil
}

// make fills a new directory with the entries of source and with the additional paths. An empty
// source means that there are no entries.
func (n *node) make(source, target string) error {
	if source != "" {
		entries, err := os.ReadDir(source)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if next := n.below[e.Name()]; next != nil {
				if next.leaf || !e.IsDir() {
					return fmt.Errorf("%s is used by the template", filepath.Join(source, e.Name()))
				}
				continue
			}
			if err := mountEntry(source, target, e); err != nil {
				return err
			}
		}
	}
	for name, next := range n.below {
		if err := next.addPath(source, target, name); err != nil {
			return err
		}
	}
	if source == "" {
		return nil
	}
	return copyAttributes(source, target)
}

// addPath creates one additional path.
func (n *node) addPath(source, target, name string) error {
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

// mountEntry mounts one entry of a template's directory in the new directory.
func mountEntry(source, target string, e os.DirEntry) error {
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

// copyAttributes gives target the permissions, owner and times of source.
func copyAttributes(source, target string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		// Without root, the same user has created both.
		if err := os.Chown(target, int(stat.Uid), int(stat.Gid)); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	if err := os.Chmod(target, info.Mode()&(os.ModePerm|os.ModeSticky)); err != nil {
		return err
	}
	return os.Chtimes(target, info.ModTime(), info.ModTime())
}
