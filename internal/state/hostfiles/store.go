package hostfiles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/diskroom"
)

// maxStoreBytes limits the size of a store. If a fifth of the free space is less, that is the
// limit. Further files are not copied.
const maxStoreBytes = 2 << 30

// keepUnused is how long an unused copy is kept. No row refers to a copy until the row is stored,
// or while an instance starts with it.
const keepUnused = time.Hour

// Store has copies of files, named by a digest of their content, so that saved memory can be
// restored after their packages were updated. Several processes may use it.
type Store struct {
	dir string
	// MaxBytes is the maximum size in bytes. Zero means the default.
	MaxBytes int64

	mu       sync.Mutex // held while copying or removing
	unsynced []string
}

// OpenStore opens a store, which it creates if necessary.
func OpenStore(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("copies of files: %w", err)
	}
	return &Store{dir: dir}, nil
}

// name returns the name of a copy. It includes the permissions, which programs see.
func (f File) name() string { return fmt.Sprintf("%s-%03o", f.Sum, f.Mode.Perm()) }

// Keep copies a file of a list if necessary, and returns it with Kept set if there is a copy.
func (s *Store) Keep(f File, o Open) (File, error) {
	f.Kept = false
	if f.Dir || f.Sum == "" {
		return f, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	path := filepath.Join(s.dir, f.name())
	if info, err := os.Lstat(path); err == nil {
		err := use(path, info)
		f.Kept = err == nil
		return f, err
	}
	if err := s.checkRoom(f.Size); err != nil {
		return f, err
	}
	from := o.held
	if from == nil {
		var err error
		if from, err = openFile(f.Path); err != nil {
			return f, err
		}
		defer from.Close()
	}
	if err := s.copy(from, path, f); err != nil {
		return f, fmt.Errorf("keep a copy of %s: %w", f.Path, err)
	}
	s.unsynced = append(s.unsynced, path)
	f.Kept = true
	return f, nil
}

// copy makes a copy under its name, if the content has the expected digest.
func (s *Store) copy(from *os.File, path string, f File) (err error) {
	to, err := os.CreateTemp(s.dir, ".new-")
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, to.Close()); err != nil {
			err = errors.Join(err, os.Remove(to.Name()))
		}
	}()
	// Some file systems can share the blocks.
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) != nil {
		if _, err := io.Copy(to, io.NewSectionReader(from, 0, f.Size)); err != nil {
			return err
		}
	}
	// Copies are never changed. They have the mode that a program inside sees, without the setuid
	// and setgid bits, which would make programs run as another user.
	if err := to.Chmod(f.Mode.Perm()); err != nil {
		return err
	}
	digest, size, err := sumOf(to, nil)
	if err != nil {
		return err
	}
	if digest != f.Sum || size != f.Size {
		return errChanged
	}
	return os.Rename(to.Name(), path)
}

// checkRoom returns an error if a copy would exceed the limit.
func (s *Store) checkRoom(n int64) error {
	if err := diskroom.CheckFloor(s.dir); err != nil {
		return err
	}
	have, err := s.Bytes()
	if err != nil {
		return err
	}
	limit := s.MaxBytes
	if limit == 0 {
		free, _, err := diskroom.Free(s.dir)
		if err != nil {
			return err
		}
		limit = min(maxStoreBytes, (free+have)/5)
	}
	if have+n > limit {
		return fmt.Errorf("copies of host files use %d MiB, and the limit is %d MiB", have>>20, limit>>20)
	}
	return nil
}

// Find returns the path of a file's copy, or "" if there is none or it was changed.
func (s *Store) Find(f File) (string, error) {
	if !f.Kept || f.Sum == "" {
		return "", nil
	}
	path := filepath.Join(s.dir, f.name())
	digest, size, err := sum(path, nil)
	if err != nil && !changed(err) {
		return "", err
	}
	if err != nil || digest != f.Sum || size != f.Size {
		return "", nil
	}
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	return path, use(path, info)
}

// use updates the time of a copy, so that Prune keeps it. It does not update it on each call,
// because a file with a new time must be hashed again.
func use(path string, info fs.FileInfo) error {
	now := time.Now()
	if info.ModTime().After(now.Add(-keepUnused / 2)) {
		return nil
	}
	return os.Chtimes(path, now, now)
}

// Bytes returns the size of all copies.
func (s *Store) Bytes() (int64, error) {
	var sum int64
	err := s.each(func(_ string, info fs.FileInfo) error {
		sum += info.Size()
		return nil
	})
	return sum, err
}

// Prune removes unfinished copies, and copies that are in no list and have not been used for half
// an hour.
func (s *Store) Prune(lists ...[]File) (freed int64, err error) {
	wanted := map[string]bool{}
	for _, f := range slices.Concat(lists...) {
		if f.Kept {
			wanted[f.name()] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := time.Now().Add(-keepUnused)
	err = s.each(func(path string, info fs.FileInfo) error {
		if wanted[info.Name()] || info.ModTime().After(before) {
			return nil
		}
		err := os.Remove(path)
		if err == nil {
			freed += info.Size()
		}
		return err
	})
	return freed, err
}

// Sync makes the copies of this process durable. After a power failure, Find detects a copy that
// was not synced.
func (s *Store) Sync() error {
	s.mu.Lock()
	paths := s.unsynced
	s.unsynced = nil
	s.mu.Unlock()
	var errs []error
	for _, path := range paths {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (s *Store) each(do func(path string, info fs.FileInfo) error) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("copies of files: %w", err)
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		if err == nil {
			err = do(filepath.Join(s.dir, e.Name()), info)
		}
		if err != nil && !strings.HasPrefix(e.Name(), ".new-") {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
