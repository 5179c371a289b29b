package retained

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lockDir opens a directory and locks it until the file is closed or the process ends. ok is false
// if another process has the lock and operation is non-blocking.
func lockDir(dir string, operation int) (f *os.File, ok bool, err error) {
	f, err = os.Open(dir)
	if err != nil {
		return nil, false, err
	}
	for {
		err = unix.Flock(int(f.Fd()), operation)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil {
		return f, true, nil
	}
	err = errors.Join(ignore(err, unix.EWOULDBLOCK), f.Close())
	return nil, false, err
}

func ignore(err, of error) error {
	if errors.Is(err, of) {
		return nil
	}
	return err
}

// draft creates the directory of a draft and locks it. The kernel releases the lock when the
// process ends, and sweepDrafts then removes the draft.
func (s *Store) draft() (dir string, held *os.File, err error) {
	// No other process may sweep between the creation of the directory and its lock.
	all, _, err := lockDir(s.path, unix.LOCK_SH)
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	if dir, err = os.MkdirTemp(s.path, draftPrefix); err != nil {
		return "", nil, err
	}
	s.step("draft made")
	held, _, err = lockDir(dir, unix.LOCK_EX)
	if err != nil {
		err = errors.Join(err, os.Remove(dir))
	}
	return dir, held, err
}

// sweepDrafts removes drafts and unfinished removals of ended processes.
func (s *Store) sweepDrafts() error {
	all, _, err := lockDir(s.path, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer all.Close()
	entries, err := os.ReadDir(s.path)
	errs := []error{err}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), draftPrefix) {
			continue
		}
		dir := filepath.Join(s.path, e.Name())
		f, ok, err := lockDir(dir, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, fs.ErrNotExist): // published since the directory was read
		case err != nil:
			errs = append(errs, err)
		case ok:
			errs = append(errs, os.RemoveAll(dir), f.Close())
		}
	}
	return errors.Join(errs...)
}

// publish renames a draft to its final name. It exchanges the draft with an existing directory of
// that name, so that a process that ends in between leaves a complete one.
func (s *Store) publish(dir, id string) error {
	to := s.at(id)
	err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.ENOENT) {
		// for a file system without exchange
		if err := s.Remove(id); err != nil {
			return err
		}
	}
	s.step("place free")
	return os.Rename(dir, to)
}

// remove renames a directory before removing it, so that an incomplete one never has the final
// name.
func (s *Store) remove(id string) error {
	dir, err := os.MkdirTemp(s.path, draftPrefix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s.step("removal begun")
	// Renaming over an empty directory is atomic. Package os has no function for it.
	if err := unix.Rename(s.at(id), dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("drop kept changes: %w", err), os.Remove(dir))
	}
	s.step("name gone")
	return ignore(os.RemoveAll(dir), fs.ErrNotExist)
}
