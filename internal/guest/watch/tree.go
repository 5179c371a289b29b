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
	num, err := unix.InotifyAddWatch(fd, path, flags)
	if errors.Is(err, unix.ENOSPC) {
		return ErrTooMany
	}
	if err != nil {
		return &os.PathError{Op: "watch", Path: path, Err: err}
	}
	if old, known := w.dirs[num]; known {
		delete(w.nums, old)
	}
	w.dirs[num] = dir
	w.nums[dir] = num
	return nil
}

// dropTree stops watching dir and everything below it, because it was moved away.
func (w *Watcher) dropTree(fd int, dir string) error {
	for name, num := range w.nums {
		if name != dir && !strings.HasPrefix(name, dir+"/") {
			continue
		}
		w.forget(num)
		_, err := unix.InotifyRmWatch(fd, uint32(num))
		// The kernel has already removed the watch of a removed directory.
		if err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("stop watching: %w", err)
		}
	}
	return nil
}

func (w *Watcher) forget(num int) {
	dir, ok := w.dirs[num]
	if !ok {
		return
	}
	delete(w.dirs, num)
	if w.nums[dir] == num {
		delete(w.nums, dir)
	}
	delete(w.seen, dir)
}
