package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/durable"
)

// Remove removes a volume and its content. It calls inUse while no sandbox can attach the volume,
// and removes nothing if inUse returns an error.
func (s *Store) Remove(id string, inUse func() error) error {
	all, err := s.lock()
	if err != nil {
		return err
	}
	defer all.Close()
	v, err := s.Get(id)
	if err != nil {
		return err
	}
	if err := inUse(); err != nil {
		return err
	}
	if err := s.unmount(v); err != nil {
		return err
	}
	s.step("unmounted")
	// The directory is renamed to a draft first, so that Sweep completes an interrupted removal.
	held, err := flock(filepath.Join(s.at(id), lockName), unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer held.Close()
	draft := s.at(draftPrefix + id)
	if err := os.Rename(s.at(id), draft); err != nil {
		return fmt.Errorf("remove volume %s: %w", v.Name, err)
	}
	s.step("name gone")
	return errors.Join(durable.SyncDir(s.dir), discard(draft))
}

// unmount unmounts the file system of a volume that no sandbox uses.
func (s *Store) unmount(v Volume) error {
	if !v.Enforced() {
		return nil
	}
	err := unmountAt(filepath.Join(s.at(v.ID), mountName))
	if errors.Is(err, unix.EBUSY) {
		return fault.Newf(fault.Conflict, "volume_in_use", "files of the volume %q are open", v.Name).
			WithHint("try again when the transfer of its files has ended")
	}
	return err
}

// Release unmounts the volumes that no sandbox uses. It calls users while no sandbox can attach a
// volume. users returns a function that reports whether a sandbox uses the volume with that ID.
func (s *Store) Release(users func() (used func(id string) bool, err error)) error {
	if _, err := os.Stat(s.dir); err != nil {
		return ignoreMissing(err)
	}
	all, err := s.lock()
	if err != nil {
		return err
	}
	defer all.Close()
	used, err := users()
	if err != nil {
		return err
	}
	list, err := s.List()
	errs := []error{err}
	for _, v := range list {
		if used(v.ID) {
			continue
		}
		// A conflict is no error: another process reads the volume's files, and will unmount it.
		if err := s.unmount(v); fault.KindOf(err) != fault.Conflict {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Mounted returns how many file systems of volumes are mounted.
func (s *Store) Mounted() (n int, err error) {
	list, err := s.List()
	for _, v := range list {
		mounted, err := isMounted(filepath.Join(s.at(v.ID), mountName))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return n, err
		}
		if mounted {
			n++
		}
	}
	return n, err
}

// discard removes the directory of a draft.
func discard(dir string) error {
	if err := unmountAt(filepath.Join(dir, mountName)); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
