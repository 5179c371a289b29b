// Package diskroom owns a reserve of free space on the disk of the state directory, with which
// users can delete files even when the disk is full.
package diskroom

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// maxShare is the divisor of the free space that bounds one reservation: at most a sixteenth, so
// that reservations do not fill a small disk.
const maxShare = 16

// Preallocate reserves disk space for n bytes of a file from an offset on, without changing the
// size of the file. A later write to that range needs no further space, so no other process can
// take the space first. Preallocate reserves nothing if the file system does not support this or
// has little space left.
func Preallocate(f *os.File, from, n int64) error {
	if n <= 0 {
		return nil
	}
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &s); err != nil {
		return fmt.Errorf("reserve disk: %w", err)
	}
	if free := int64(s.Bavail) * s.Bsize; n > free/maxShare {
		return nil
	}
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, n)
	for _, expected := range []error{unix.EOPNOTSUPP, unix.ENOSYS, unix.ENOSPC, unix.EDQUOT} {
		if errors.Is(err, expected) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("reserve disk: %w", err)
	}
	return nil
}

// Full reports whether an error means that the disk is full.
func Full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// Free returns how many bytes this user may still write to a directory's file system, and the file
// system's total size.
func Free(dir string) (free, total int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, fmt.Errorf("free disk of %s: %w", dir, err)
	}
	return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize, nil
}

const (
	// FileName is the reserve's name in the state directory.
	FileName = "reserve"
	// fullSize is the reserve's size, and partSize is how much of it one Release frees.
	fullSize = 32 << 20
	partSize = 4 << 20
)

// Reserve is a file that holds disk space for operations that delete things. It is safe for
// concurrent use, also by several processes.
type Reserve struct {
	path string
	mu   sync.Mutex
}

// New returns the reserve of a state directory.
func New(dir string) *Reserve { return &Reserve{path: filepath.Join(dir, FileName)} }

// Fill restores the reserve to its full size if the disk has room.
func (r *Reserve) Fill() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, err := os.OpenFile(r.path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("disk reserve: %w", err)
	}
	defer f.Close()
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &s); err != nil {
		return fmt.Errorf("disk reserve: %w", err)
	}
	return Preallocate(f, 0, min(fullSize, int64(s.Bavail)*s.Bsize/maxShare/partSize*partSize))
}

// Release frees one part of the reserve, and reports whether there was a part to free.
func (r *Reserve) Release() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, err := os.OpenFile(r.path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil || s.Blocks == 0 {
		return false
	}
	const hole = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	for at := int64(fullSize - partSize); at >= 0; at -= partSize {
		if err := unix.Fallocate(int(f.Fd()), hole, at, partSize); err != nil {
			return f.Truncate(0) == nil
		}
		var now unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &now); err == nil && now.Blocks < s.Blocks {
			return true
		}
	}
	return false
}

// Floor returns how much space a disk must have free before a new sandbox or snapshot may be made:
// a twentieth of its size, and at most 1 GiB.
func Floor(total int64) int64 { return min(total/20, 1<<30) }

// CheckFloor returns an error if the disk's free space is below the floor.
func CheckFloor(dir string) error {
	free, total, err := Free(dir)
	if err != nil {
		return err
	}
	if floor := Floor(total); free < floor {
		return fault.Newf(fault.Exhausted, "state_disk_low", "the disk of the state directory has %d MiB left, and %d MiB must stay free", free>>20, floor>>20).
			WithHint("free disk space at " + dir + ", or remove sandboxes and snapshots")
	}
	return nil
}

// Check checks whether a directory's disk has space for new sandboxes. The zero value allows
// everything; it is for tests that write nothing.
type Check struct{ Dir string }

// Check returns an error if the disk's free space is below the floor.
func (r Check) Check() error {
	if r.Dir == "" {
		return nil
	}
	return CheckFloor(r.Dir)
}

// Fit returns how many bytes of the requested amount one sandbox may use without bringing the disk
// below its floor: the whole amount, or the largest power of two that fits.
func (r Check) Fit(amount int64) int64 {
	if r.Dir == "" {
		return amount
	}
	free, total, err := Free(r.Dir)
	if err != nil {
		return amount // the write that needs the disk reports the error
	}
	free -= Floor(total)
	for amount > free && amount > 1 {
		// The next lower power of two.
		amount = 1 << (bits.Len64(uint64(amount-1)) - 1)
	}
	return amount
}
