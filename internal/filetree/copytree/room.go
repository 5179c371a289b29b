package copytree

import (
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/diskroom"
)

// room keeps a part of a disk free, so that the files that a sandbox sends cannot fill
// the host's disk. A nil room keeps nothing free.
type room struct {
	fd     int
	keep   int64 // bytes
	inodes uint64
	every  int64 // after how many bytes the disk is looked at again
	since  int64 // bytes, since it was last looked at
}

// lookEvery is after how many bytes a disk is looked at again that is not small.
const lookEvery = 16 << 20

func newRoom(fd int) (*room, error) {
	var s unix.Statfs_t
	if err := unix.Fstatfs(fd, &s); err != nil {
		return nil, err
	}
	free, total := int64(s.Bavail)*s.Bsize, int64(s.Blocks)*s.Bsize
	// On a disk that has little left, a small copy may still take half of that.
	r := &room{fd: fd, keep: min(diskroom.Floor(total), free/2), inodes: min(s.Files/20, s.Ffree/2)}
	// Between two looks no more is taken than half of what stays free.
	r.every = min(lookEvery, r.keep/2)
	if s.Files > 0 {
		r.every = min(r.every, int64(min(r.inodes, lookEvery)/2)*block)
	}
	return r, nil
}

// take counts what is written next.
func (r *room) take(n int64) error {
	if r == nil {
		return nil
	}
	if r.since += n; r.since < r.every {
		return nil
	}
	r.since = 0
	return r.check()
}

func (r *room) check() error {
	var s unix.Statfs_t
	if err := unix.Fstatfs(r.fd, &s); err != nil {
		return err
	}
	free := int64(s.Bavail) * s.Bsize
	hint := "nothing of the copy was kept; free disk space, or copy less"
	switch {
	case free < r.keep:
		return fault.Newf(fault.Exhausted, CodeDiskFull, "the copy would fill the disk: it has %d MiB left, and %d MiB stay free", free>>20, r.keep>>20).WithHint(hint)
	case s.Files > 0 && s.Ffree < r.inodes:
		return fault.New(fault.Exhausted, CodeDiskFull, "the copy would use up the file system's inodes").WithHint(hint)
	}
	return nil
}
