package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// head is the end of the log as far as this process has read it. Other processes may have written
// more.
type head struct {
	loaded bool
	size   int64  // number of entries
	prev   string // hash of the last line

	segment *os.File // open segment, or nil
	first   int64    // number of the segment's first entry
	started time.Time
	end     int64 // length of the segment
	ahead   int64 // end of the disk space that is reserved for the segment

	hashes *os.File
}

func (h *head) close() error {
	var errs []error
	for _, f := range []*os.File{h.segment, h.hashes} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	*h = head{}
	return errors.Join(errs...)
}

func hashOf(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// catchUp reads to the end of the files. It repairs an entry that a process left incomplete when it
// was killed. The caller holds the lock.
func (l *Log) catchUp() error {
	h := &l.head
	if h.loaded && h.segment != nil && unlinked(h.segment) {
		h.loaded = false // another process has dropped the segment
	}
	if !h.loaded {
		if err := l.load(); err != nil {
			return errors.Join(err, h.close())
		}
	}
	err := l.readOthers()
	if err != nil {
		return errors.Join(err, h.close())
	}
	return nil
}

// unlinked reports whether the name of an open file is gone or names another file.
func unlinked(f *os.File) bool {
	info, err := os.Lstat(f.Name())
	if err != nil {
		return true
	}
	opened, err := f.Stat()
	return err != nil || !os.SameFile(info, opened)
}

// load finds the last complete line.
func (l *Log) load() (err error) {
	h := &l.head
	if err := h.close(); err != nil {
		return err
	}
	if h.hashes, err = openAt(l.path(hashesName), os.O_RDWR|os.O_CREATE); err != nil {
		return err
	}
	segments, err := listSegments(l.dir)
	if err != nil {
		return err
	}
	for i, v := range slices.Backward(segments) {
		f, err := openAt(l.path(segmentName(v)), os.O_RDWR)
		if err != nil {
			return err
		}
		line, end, err := lastLine(f)
		if err == nil && line == nil && i > 0 {
			// The file was created but has no entries. The end is in the previous file.
			if err = f.Close(); err == nil {
				continue
			}
		}
		if err == nil && line != nil {
			var e Entry
			if e, err = decode(line); err == nil {
				h.size, h.prev, h.end = e.Seq+1, hashOf(line), end
			}
		}
		if err != nil {
			return errors.Join(err, f.Close())
		}
		h.segment, h.first = f, v
		break
	}
	if h.segment != nil && h.size < h.first {
		return damageError("the last file begins with entry %d, but its last entry is %d", h.first, h.size-1)
	}
	h.started = l.beginning(h.segment)
	if err := l.dropZeroHashes(); err != nil {
		return err
	}
	if err := l.completeTree(); err != nil {
		return err
	}
	if err := l.checkTreeHead(); err != nil {
		return err
	}
	h.loaded = true
	return nil
}

// beginning returns the time of a segment's first entry.
func (l *Log) beginning(f *os.File) time.Time {
	if f != nil {
		if line, err := newLines(f, 0).next(); err == nil {
			if e, err := decode(line); err == nil {
				return e.Time
			}
		}
	}
	return time.Time{}
}

// readOthers reads the entries that other processes have written after the head.
func (l *Log) readOthers() error {
	h := &l.head
	for {
		if h.segment != nil {
			if err := l.takeLines(); err != nil {
				return err
			}
		}
		next, err := openAt(l.path(segmentName(h.size)), os.O_RDWR)
		if errors.Is(err, fs.ErrNotExist) || err == nil && h.segment != nil && h.first == h.size {
			if next != nil {
				return next.Close() // it is the open segment, which has no lines yet
			}
			return nil
		}
		if err != nil {
			return err
		}
		if h.segment != nil {
			err = h.segment.Close()
		}
		h.segment, h.first, h.end, h.started = next, h.size, 0, l.beginning(next)
		if err != nil {
			return err
		}
	}
}

// takeLines reads the open segment up to its end.
func (l *Log) takeLines() error {
	h := &l.head
	info, err := h.segment.Stat()
	if err != nil {
		return err
	}
	if info.Size() < h.end {
		return damageError("%s is shorter than it was", segmentName(h.first))
	}
	hashed, err := h.hashes.Stat()
	if err != nil {
		return err
	}
	covered := entriesIn(hashed.Size())
	if info.Size() > h.end {
		in := newLines(h.segment, h.end)
		for err = nil; err == nil; {
			var line []byte
			if line, err = in.next(); err == nil {
				err = l.takeLine(line, in.at)
			}
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
		// Only an entry that was never acknowledged may be removed. If its hash is in the tree, its
		// line was complete.
		if len(in.left) > 0 && covered <= h.size {
			l.opts.step("cut")
			if err := h.segment.Truncate(h.end); err != nil {
				return err
			}
			l.log.Warn("cut off an incomplete entry", "seq", h.size, "bytes", len(in.left))
		}
	}
	if covered > h.size && !l.exists(segmentName(h.size)) {
		return damageError("the tree has %d entries, but the lines end after %d", covered, h.size)
	}
	return l.completeTree()
}

func (l *Log) exists(name string) bool {
	_, err := os.Lstat(l.path(name))
	return err == nil
}

// takeLine advances the head by one line.
func (l *Log) takeLine(line []byte, end int64) error {
	h := &l.head
	e, err := decode(line)
	if err != nil {
		return err
	}
	if e.Seq != h.size || e.Prev != h.prev {
		return damageError("entry %d does not follow entry %d", e.Seq, h.size-1)
	}
	h.size, h.prev, h.end = h.size+1, hashOf(line), end
	if h.started.IsZero() {
		h.started = e.Time
	}
	return nil
}
