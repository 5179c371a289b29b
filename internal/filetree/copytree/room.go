package copytree

import (
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/diskroom"
)

// spaceLimit preserves free space on a disk, so that the files of a sandbox cannot fill the host's
// disk. A nil spaceLimit preserves nothing.
type spaceLimit struct {
	fd     int
	keep   int64  // bytes to preserve
	inodes uint64 // inodes to preserve
	every  int64  // the number of bytes after which the disk is checked again
	since  int64  // bytes written since the last check
}

// checkInterval is the number of bytes after which a disk with much free space is checked again.
const checkInterval = 16 << 20

// newSpaceLimit returns the limit for the disk of an open file.
func newSpaceLimit(fd int) (*spaceLimit, error) {
	var s unix.Statfs_t
	if err := unix.Fstatfs(fd, &s); err != nil {
		return nil, err
	}
	free, total := int64(s.Bavail)*s.Bsize, int64(s.Blocks)*s.Bsize
	// On a disk with little free space, a small copy may still take half of it.
	r := &spaceLimit{fd: fd, keep: min(diskroom.Floor(total), free/2), inodes: min(s.Files/20, s.Ffree/2)}
	// Between two checks, a copy uses at most half of the space to preserve.
	r.every = min(checkInterval, r.keep/2)
	if s.Files > 0 {
		r.every = min(r.every, int64(min(r.inodes, checkInterval)/2)*block)
	}
	return r, nil
}

// take counts bytes that are about to be written.
func (r *spaceLimit) take(n int64) error {
	if r == nil {
		return nil
	}
	if r.since += n; r.since < r.every {
		return nil
	}
	r.since = 0
	return r.check()
}

// check returns an error if the space to preserve would be used.
func (r *spaceLimit) check() error {
	var s unix.Statfs_t
	if err := unix.Fstatfs(r.fd, &s); err != nil {
		return err
	}
	free := int64(s.Bavail) * s.Bsize
	hint := "the incomplete copy was removed; free disk space, or copy less"
	switch {
	case free < r.keep:
		return fault.Newf(fault.Exhausted, CodeDiskFull, "the copy would fill the disk, which has %d MiB left, of which %d MiB must stay free", free>>20, r.keep>>20).WithHint(hint)
	case s.Files > 0 && s.Ffree < r.inodes:
		return fault.New(fault.Exhausted, CodeDiskFull, "the copy would use up the file system's inodes").WithHint(hint)
	}
	return nil
}
