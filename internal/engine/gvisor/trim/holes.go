package trim

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
)

// least is the smallest hole that is given back. Each costs the kernel a call in the program's
// process, and one more record in the state; reading the pages of a smaller hole costs less.
const least = 8 * hostarch.PageSize

// hole is a part of a file that has no pages.
type hole struct{ start, end uint64 }

// holes are the holes of a file between two offsets, in whole pages. Memory that the host has
// swapped out is not a hole.
func holes(fd int, start, end uint64) ([]hole, error) {
	var all []hole
	for start < end {
		at, err := seek(fd, start, end, unix.SEEK_HOLE)
		if err != nil || at == end {
			return all, err
		}
		next, err := seek(fd, at, end, unix.SEEK_DATA)
		if err != nil {
			return all, err
		}
		if next-at >= least {
			all = append(all, hole{at, next})
		}
		start = next
	}
	return all, nil
}

// seek finds the next hole or the next page, or the end. It moves the position of the
// memory file, at which no code reads or writes.
func seek(fd int, from, end uint64, what int) (uint64, error) {
	at, err := unix.Seek(fd, int64(from), what)
	if errors.Is(err, unix.ENXIO) && what == unix.SEEK_DATA {
		return end, nil // there is none
	}
	if err != nil {
		return 0, fmt.Errorf("memory file at %#x: %w", from, err)
	}
	if at%hostarch.PageSize != 0 {
		return 0, fmt.Errorf("the memory file has a part of a page, at %#x", at)
	}
	return min(uint64(at), end), nil
}
