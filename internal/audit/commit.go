package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/diskroom"
	"github.com/crannog/crannog/internal/host/durable"
)

// checkpointEvery is the maximum number of entries between two signed tree heads.
const checkpointEvery = 1000

// aheadBytes is the minimum disk space that is reserved for future entries.
const aheadBytes = 1 << 20

// probeName is the name of a file that exists only while free space is tested.
const probeName = "probe"

// commit writes a batch. If err is nil, the batch is durable. Otherwise none of its entries is in
// the log. unsigned is the error of a requested tree head; the batch is written anyway and must not
// be rejected or written again.
func (l *Log) commit(batch []encodedEntry, sign bool) (unsigned, err error) {
	err = l.locked(context.Background(), func() error {
		before := l.head.size
		if len(batch) > 0 {
			if err := l.write(batch); err != nil {
				return err
			}
		}
		if sign || before/checkpointEvery != l.head.size/checkpointEvery {
			// The entries are durable. If signing fails now, it fails again for the next caller
			// that requests a tree head, which then gets the error.
			if unsigned = l.signLocked(); unsigned != nil && !sign {
				l.log.Error("tree head not written", "err", unsigned)
			}
		}
		return nil
	})
	if err == nil && len(batch) > 0 {
		l.signing.arm(l)
	}
	return l.writeFault(unsigned), l.writeFault(err)
}

// checkSpace returns an error if the disk does not accept a write.
func (l *Log) checkSpace() error {
	return l.writeFault(l.locked(context.Background(), func() error {
		return errors.Join(replaceFile(l.path(probeName), make([]byte, 64<<10)), os.Remove(l.path(probeName)))
	}))
}

// write appends the lines of a batch and then their hashes. The caller holds the lock.
func (l *Log) write(batch []encodedEntry) error {
	if err := l.roll(); err != nil {
		return err
	}
	h := &l.head
	next := *h
	tree := treeOf(h.hashes, h.size)
	var text []byte
	for _, p := range batch {
		from := len(text)
		text = p.line(text, next.size, next.prev)
		line := text[from:]
		if err := tree.add(next.size, tlog.RecordHash(line)); err != nil {
			return err
		}
		next.size, next.prev = next.size+1, hashOf(line)
		text = append(text, '\n')
	}
	next.end = h.end + int64(len(text))
	if err := l.reserve(next.end); err != nil {
		return err
	}
	next.ahead = h.ahead
	l.opts.step("lines")
	_, err := h.segment.WriteAt(text, h.end)
	if err == nil {
		l.opts.step("sync")
		err = datasync(h.segment)
	}
	if err == nil {
		// Readers see an entry once its hash is written, so they only see durable entries.
		l.opts.step("hashes")
		_, err = h.hashes.WriteAt(tree.bytes(), tree.base*tlog.HashSize)
	}
	if err != nil {
		return errors.Join(err, l.undo())
	}
	if next.started.IsZero() {
		next.started = time.Now()
	}
	*h = next
	l.opts.step("written")
	return nil
}

// reserve reserves disk space for future entries. Actions that cannot be logged are not performed,
// so without the reserve a sandbox that fills the disk could stop all others.
func (l *Log) reserve(end int64) error {
	h := &l.head
	if end < h.ahead {
		return nil
	}
	h.ahead = end + aheadBytes
	tree := tlog.StoredHashCount(h.size) * tlog.HashSize
	return errors.Join(diskroom.Preallocate(h.segment, end, 2*aheadBytes), diskroom.Preallocate(h.hashes, tree, aheadBytes))
}

// undo removes the lines of a failed batch.
func (l *Log) undo() error {
	h := &l.head
	err := errors.Join(h.hashes.Truncate(tlog.StoredHashCount(h.size)*tlog.HashSize), h.segment.Truncate(h.end))
	// The state of the files is unknown now, so they are read again.
	h.loaded = false
	if err != nil {
		return fmt.Errorf("cut off: %w", err)
	}
	return nil
}

func datasync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// roll starts a new segment if there is none, or if the last one is large or old enough. A small
// segment must end after some time too, because entries are only dropped with their whole segment.
func (l *Log) roll() error {
	h := &l.head
	if h.segment != nil {
		old := l.opts.KeepAge > 0 && !h.started.IsZero() && time.Since(h.started) > l.opts.KeepAge/8
		if h.end == 0 || h.end < l.opts.SegmentBytes && !old {
			return nil
		}
	}
	l.opts.step("roll")
	f, err := openAt(l.path(segmentName(h.size)), os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	if err := durable.SyncDir(l.dir); err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	rolled := h.segment != nil
	if rolled {
		err = h.segment.Close()
	}
	h.segment, h.first, h.end, h.ahead, h.started = f, h.size, 0, 0, time.Time{}
	if rolled {
		l.signing.retain(l)
	}
	return err
}
