package audit

import (
	"errors"
	"io"
	"os"
)

// spot is the position of an entry: first is the number of its segment's first entry, and offset is
// the position in that segment.
type spot struct{ seq, first, offset int64 }

// walk reads the lines of the entries from..to, in order, without to. It starts at a known spot, or
// at the beginning of the segment that has the first entry. A line is valid until yield returns.
func (l *Log) walk(s spot, from, to int64, yield func(spot, []byte) error) error {
	segments, err := listSegments(l.dir)
	if err != nil {
		return err
	}
	for at := from; at < to; {
		first, ok := segmentOf(segments, at)
		if !ok {
			return damageError("entry %d is in no file", at)
		}
		if s.first != first || s.seq > at || s.offset == 0 {
			s = spot{seq: first, first: first}
		}
		next, err := l.walkFile(s, at, to, yield)
		if err != nil {
			return err
		}
		if next == at {
			return damageError("entry %d is missing from %s", at, segmentName(first))
		}
		at = next
	}
	return nil
}

func (l *Log) walkFile(s spot, from, to int64, yield func(spot, []byte) error) (next int64, err error) {
	f, err := openAt(l.path(segmentName(s.first)), os.O_RDONLY)
	if err != nil {
		return from, err
	}
	defer f.Close()
	in := newLines(f, s.offset)
	for ; s.seq < to; s.seq++ {
		s.offset = in.at
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			return max(s.seq, from), nil
		}
		if err != nil {
			return from, err
		}
		if s.seq >= from {
			if err := yield(s, line); err != nil {
				return s.seq, err
			}
		}
	}
	return to, nil
}

// extent returns the number of the first remaining entry, and the number of entries ever written.
func (l *Log) extent() (first, size int64, err error) {
	info, err := os.Stat(l.path(hashesName))
	if err != nil {
		return 0, 0, err
	}
	size = entriesIn(info.Size())
	segments, err := listSegments(l.dir)
	if err != nil || len(segments) == 0 {
		return size, size, err
	}
	return segments[0], size, nil
}
