package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Filter selects entries. Its zero value selects all.
type Filter struct {
	Sandbox   string
	Sandboxes []string // any of these sandboxes; nil means all entries, empty means none
	Kinds     []Kind   // any of these kinds; none means all
	// From is the first number, and Before the number after the last; 0 means no bound.
	From, Before int64
	// Since is inclusive, Until is exclusive.
	Since, Until time.Time
	// Limit is the maximum number of entries: the first ones or, with Newest, the last ones. 0
	// means all.
	Limit  int
	Newest bool
}

// readBatch is the maximum number of entries that are looked up at once.
const readBatch = 512

// Read calls yield for each matching entry, in order, until yield returns an error, which Read
// returns. With follow it continues with entries as any process writes them, until ctx ends or
// EndFollowing is called.
func (l *Log) Read(ctx context.Context, filter Filter, follow bool, yield func(Entry) error) error {
	return l.readLines(ctx, filter, follow, func(e Entry, _ []byte) error { return yield(e) })
}

// EndFollowing ends all calls of Read with follow after the existing entries, so that a server that
// shuts down does not wait for them.
func (l *Log) EndFollowing() { l.growth.end() }

// readLines is Read with the line of each entry.
func (l *Log) readLines(ctx context.Context, filter Filter, follow bool, yield func(Entry, []byte) error) error {
	if filter.Newest && filter.Limit <= 0 {
		return invalidEntry("the newest entries were requested without a limit")
	}
	// Entries that this process has queued must be visible to this reader.
	if err := l.queue.flush(ctx); err != nil && ctx.Err() != nil {
		return err
	}
	grown, stop, err := l.growth.watch(follow)
	if err != nil {
		return err
	}
	defer stop()
	after, left := filter.From-1, filter.Limit
	for {
		var changed <-chan struct{}
		if follow {
			changed = grown() // before the read, so that no entry is missed
		}
		for {
			n, last, err := l.readBatch(ctx, filter, after, left, yield)
			if err != nil {
				return err
			}
			after = last
			if filter.Limit > 0 {
				if left -= n; left <= 0 && (!filter.Newest || !follow) {
					return nil
				}
			}
			if n < readBatch || filter.Newest {
				break
			}
		}
		if changed == nil || filter.Before > 0 && after >= filter.Before-1 {
			return nil
		}
		if filter.Newest {
			// The newest entries were read; from here on all entries follow.
			filter.Newest, filter.Limit, left = false, 0, 0
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// readBatch reads the entries after a number, and returns the number to continue after.
func (l *Log) readBatch(ctx context.Context, filter Filter, after int64, left int, yield func(Entry, []byte) error) (n int, last int64, err error) {
	spots, last, broken, err := l.find(ctx, filter, after, left)
	if err != nil {
		return 0, after, fmt.Errorf("read audit log: %w", err)
	}
	var f *os.File
	var in *lines            // lines of f
	var openFirst int64 = -1 // first entry of the open segment
	defer func() {
		if f != nil {
			f.Close()
		}
	}()
	for _, s := range spots {
		if err := ctx.Err(); err != nil {
			return n, after, err
		}
		if s.first != openFirst {
			if f != nil {
				f.Close()
			}
			if f, err = openAt(l.path(segmentName(s.first)), os.O_RDONLY); errors.Is(err, fs.ErrNotExist) {
				f, openFirst, err = nil, -1, nil
				n++
				continue // the segment was dropped in the meantime
			} else if err != nil {
				return n, after, fmt.Errorf("read audit log: %w", err)
			}
			in, openFirst = newLines(f, s.offset), s.first
		}
		in.seek(s.offset)
		line, err := in.next()
		if err != nil {
			return n, after, fmt.Errorf("read audit log: entry %d: %w", s.seq, err)
		}
		e, err := decode(line)
		if err == nil && e.Seq != s.seq {
			err = damageError("entry %d is at the place of entry %d", e.Seq, s.seq)
		}
		if err != nil {
			return n, after, fmt.Errorf("read audit log: entry %d: %w", s.seq, err)
		}
		if err := yield(e, line); err != nil {
			return n, after, err
		}
		n++
	}
	if broken != nil && len(spots) < readBatch {
		return n, last, fmt.Errorf("read audit log: %w", broken)
	}
	return n, last, nil
}
