// Package diskroom owns room on the disk of the state directory that is kept
// back, so that a full disk does not keep anybody from removing what fills it.
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

// share is the part of what is free that one reserve may take, so that a small
// disk is not filled by its reserves.
const share = 16

// Ahead reserves disk for the n bytes of a file from an offset on, and leaves
// the size of the file as it is. What is written there later needs no other disk,
// so no other process can take it in between, as it could take disk that was only
// freed. Where
// the file system cannot do that, or has little left, nothing is reserved.
func Ahead(f *os.File, from, n int64) error {
	if n <= 0 {
		return nil
	}
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &s); err != nil {
		return fmt.Errorf("reserve disk: %w", err)
	}
	if free := int64(s.Bavail) * s.Bsize; n > free/share {
		return nil
	}
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, n)
	for _, cannot := range []error{unix.EOPNOTSUPP, unix.ENOSYS, unix.ENOSPC, unix.EDQUOT} {
		if errors.Is(err, cannot) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("reserve disk: %w", err)
	}
	return nil
}

// Full reports whether an error is that of a full disk.
func Full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// Free returns how many bytes a directory's file system has left for this user,
// and how many it has in all.
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
	size     = 32 << 20
	part     = 4 << 20
)

// Reserve is a file that holds disk for what removes. It is safe for concurrent
// use, and by several processes.
type Reserve struct {
	path string
	mu   sync.Mutex
}

// New returns the reserve of a state directory.
func New(dir string) *Reserve { return &Reserve{path: filepath.Join(dir, FileName)} }

// Fill makes the reserve whole again where the disk has room for it.
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
	return Ahead(f, 0, min(size, int64(s.Bavail)*s.Bsize/share/part*part))
}

// Give gives back a part of what is reserved, and reports whether there was any.
func (r *Reserve) Give() bool {
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
	for at := int64(size - part); at >= 0; at -= part {
		if err := unix.Fallocate(int(f.Fd()), hole, at, part); err != nil {
			return f.Truncate(0) == nil
		}
		var now unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &now); err == nil && now.Blocks < s.Blocks {
			return true
		}
	}
	return false
}

// Floor is how much of a disk of a size must be free for anything new to begin:
// a twentieth, and at most 1 GiB.
func Floor(total int64) int64 { return min(total/20, 1<<30) }

// CheckFloor refuses what would take more of a disk that has little left.
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

// Room is what a directory's disk has for new sandboxes. The zero value is one
// without bounds, for tests that write nothing.
type Room struct{ Dir string }

// Check refuses what would take more of a disk that has little left.
func (r Room) Check() error {
	if r.Dir == "" {
		return nil
	}
	return CheckFloor(r.Dir)
}

// Fit returns how much of an amount one sandbox may take without the disk
// falling below its floor: all of it, or the largest power of two.
func (r Room) Fit(amount int64) int64 {
	if r.Dir == "" {
		return amount
	}
	free, total, err := Free(r.Dir)
	if err != nil {
		return amount // the write that needs the disk reports the error
	}
	for free -= Floor(total); amount > free && amount > 1; {
		amount = 1 << (bits.Len64(uint64(amount-1)) - 1)
	}
	return amount
}
