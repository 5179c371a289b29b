package watch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// addTree watches dir, which is relative to the root, and with recursive all directories below it.
// If found is not nil, it is called for every existing entry. addTree must run as the user.
func (w *Watcher) addTree(fd int, dir string, found func(dir, name string)) error {
	if err := w.add(fd, dir); err != nil {
		return err
	}
	if !w.recursive {
		return nil
	}
	children, err := os.ReadDir(filepath.Join(w.root, dir))
	if err != nil {
		return w.tolerate(dir, err)
	}
	for _, child := range children {
		if found != nil {
			found(dir, child.Name())
		}
		if !child.IsDir() {
			continue
		}
		below := filepath.Join(dir, child.Name())
		if err := w.addTree(fd, below, found); err != nil {
			if err := w.tolerate(below, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// tolerate ignores errors about directories below the root that were removed or that the user may
// not read.
func (w *Watcher) tolerate(dir string, err error) error {
	gone := errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
	if dir != "." && (gone || errors.Is(err, os.ErrPermission)) {
		return nil
	}
	return err
}

// add watches one directory. The root may be a link. Links below it are not followed, because they
// may form a loop.
func (w *Watcher) add(fd int, dir string) error {
	if len(w.dirs) >= maxDirs {
		return ErrTooMany
	}
	flags := uint32(mask)
	if dir != "." {
		flags |= unix.IN_DONT_FOLLOW
	}
	path := filepath.Join(w.root, dir)
	wd, err := unix.InotifyAddWatch(fd, path, flags)
	if errors.Is(err, unix.ENOSPC) {
		return ErrTooMany
	}
	if err != nil {
		return &os.PathError{Op: "watch", Path: path, Err: err}
	}
	if old, known := w.dirs[wd]; known {
		delete(w.wds, old)
	}
	w.dirs[wd] = dir
	w.wds[dir] = wd
	return nil
}

// dropTree stops watching dir and everything below it, because it was moved away.
func (w *Watcher) dropTree(fd int, dir string) error {
	for name, wd := range w.wds {
		if name != dir && !strings.HasPrefix(name, dir+"/") {
			continue
		}
		w.forget(wd)
		_, err := unix.InotifyRmWatch(fd, uint32(wd))
		// The kernel has already removed the watch of a removed directory.
		if err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("stop watching: %w", err)
		}
	}
	return nil
}

func (w *Watcher) forget(wd int) {
	dir, ok := w.dirs[wd]
	if !ok {
		return
	}
	delete(w.dirs, wd)
	if w.wds[dir] == wd {
		delete(w.wds, dir)
	}
	delete(w.reportedEarly, dir)
}
