package trim

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
)

// minHole is the size of the smallest hole that is released. Releasing a hole costs the kernel a
// call in the program's process, and an entry in the state. Reading the pages of a smaller hole
// costs less.
const minHole = 8 * hostarch.PageSize

// hole is a part of a file that has no pages.
type hole struct{ start, end uint64 }

// holes returns the holes of a file between two offsets, in whole pages. Memory that the host has
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
		if next-at >= minHole {
			all = append(all, hole{at, next})
		}
		start = next
	}
	return all, nil
}

// seek returns the next hole or the next page, or the end. It moves the offset of the memory file,
// which no code uses.
func seek(fd int, from, end uint64, what int) (uint64, error) {
	at, err := unix.Seek(fd, int64(from), what)
	if errors.Is(err, unix.ENXIO) && what == unix.SEEK_DATA {
		return end, nil // no page follows
	}
	if err != nil {
		return 0, fmt.Errorf("memory file at %#x: %w", from, err)
	}
	if at%hostarch.PageSize != 0 {
		return 0, fmt.Errorf("the memory file has an incomplete page at %#x", at)
	}
	return min(uint64(at), end), nil
}
