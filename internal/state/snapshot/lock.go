package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// Locks are flocks: the kernel releases them when the process ends, and they work between processes
// and between goroutines. A shared lock on an image's directory protects its files, for leases and
// long reads. An exclusive one allows its owner to remove files. The file "lock" guards the set of
// packs and which images need them.

var errBusy = errors.New("locked by another process")

// lockWait limits the wait for a holder that does not react to the context.
const lockWait = 10 * time.Second

// tryLock takes a lock or returns errBusy.
func tryLock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return errBusy
		}
		return err
	}
}

// lock waits for a lock.
func lock(ctx context.Context, f *os.File, how int) error {
	end := time.NewTimer(lockWait)
	defer end.Stop()
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		if err := tryLock(f, how); !errors.Is(err, errBusy) {
			return err
		}
		again := time.NewTimer(pause)
		select {
		case <-again.C:
		case <-end.C:
			return errBusy
		case <-ctx.Done():
			again.Stop()
			return ctx.Err()
		}
	}
}

// lockPacks takes the lock of packs and indexes.
func (s *Images) lockPacks(ctx context.Context) (unlock func(), err error) {
	f, err := s.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock images: %w", err)
	}
	if err := lock(ctx, f, unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock images: %w", err)
	}
	return func() { f.Close() }, nil
}

// lockImage opens an image's directory with a lock. Without wait it returns errBusy if the lock is
// taken.
func (s *Images) lockImage(ctx context.Context, id string, how int, wait bool) (*os.File, error) {
	if err := validID(id); err != nil {
		return nil, err
	}
	for {
		info, err := s.root.Lstat(imagePath(id))
		if err == nil && !info.IsDir() {
			return nil, damaged(id, "its directory was exchanged", nil)
		}
		var d *os.File
		if err == nil {
			d, err = s.root.Open(imagePath(id))
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil, notFound(id)
		}
		if err != nil {
			return nil, fmt.Errorf("open image %s: %w", id, err)
		}
		if wait {
			err = lock(ctx, d, how)
		} else {
			err = tryLock(d, how)
		}
		if err == nil && s.isAt(d, imagePath(id)) {
			return d, nil
		}
		d.Close()
		switch {
		case errors.Is(err, errBusy) && wait:
			return nil, fault.Newf(fault.Conflict, "snapshot_in_use", "snapshot %s is being used", id).WithHint("try again")
		case errors.Is(err, errBusy):
			return nil, errBusy
		case errors.Is(err, context.Canceled):
			return nil, fault.Wrap(err, fault.Canceled, "canceled", "canceled while waiting for a snapshot")
		case errors.Is(err, context.DeadlineExceeded):
			return nil, fault.Wrap(err, fault.Timeout, "timeout", "timeout while waiting for a snapshot")
		case err != nil:
			return nil, fmt.Errorf("lock image %s: %w", id, err)
		}
		// The directory was removed during the wait. Another one may have its name now.
	}
}

// isAt reports whether an open directory still has its name.
func (s *Images) isAt(d *os.File, name string) bool {
	have, err := d.Stat()
	if err != nil {
		return false
	}
	there, err := s.root.Lstat(name)
	return err == nil && os.SameFile(have, there)
}
