package trim

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
)

// minHole is the size of the smallest hole that is released. Releasing a hole costs the kernel a
// call in the program's process, and an entry in the state. Reading the pages of a smaller hole
// costs less.
const minHole = 8 * hostarch.PageSize

// hole is a part of a file that has no pages.
type hole struct{ start, end uint64 }

// scanner finds the holes of a file that does not change. It remembers the last parts that it found:
// the kernel searches beyond the end of an area, and areas follow each other in the file.
type scanner struct {
	fd int
	// absent is the last range without pages, and present the last range in which each page exists.
	absent, present hole
}

// holes returns the holes between two offsets, in whole pages. Memory that the host has swapped out
// is not a hole.
func (s *scanner) holes(start, end uint64) ([]hole, error) {
	var all []hole
	for start < end {
		at, err := s.nextHole(start)
		if err != nil || at >= end {
			return all, err
		}
		next, err := s.nextPage(at)
		if err != nil {
			return all, err
		}
		if next = min(next, end); next-at >= minHole {
			all = append(all, hole{at, next})
		}
		start = next
	}
	return all, nil
}

// nextHole returns the first offset from which the file has no page. The end of the file counts as
// a hole.
func (s *scanner) nextHole(from uint64) (uint64, error) {
	if s.absent.contains(from) {
		return from, nil
	}
	if s.present.contains(from) {
		return s.present.end, nil
	}
	at, err := seek(s.fd, from, unix.SEEK_HOLE)
	if err == nil {
		s.present = hole{from, at}
	}
	return at, err
}

// nextPage returns the offset of the first page.
func (s *scanner) nextPage(from uint64) (uint64, error) {
	if s.absent.contains(from) {
		return s.absent.end, nil
	}
	at, err := seek(s.fd, from, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return math.MaxUint64, nil // no page follows
	}
	if err == nil {
		s.absent = hole{from, at}
	}
	return at, err
}

func (h hole) contains(at uint64) bool { return h.start <= at && at < h.end }

// seek returns the next hole or the next page. It moves the offset of the memory file, which no
// code uses.
func seek(fd int, from uint64, what int) (uint64, error) {
	at, err := unix.Seek(fd, int64(from), what)
	if err != nil {
		return 0, fmt.Errorf("memory file at %#x: %w", from, err)
	}
	if at%hostarch.PageSize != 0 {
		return 0, fmt.Errorf("the memory file has an incomplete page at %#x", at)
	}
	return uint64(at), nil
}
