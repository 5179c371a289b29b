package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Filter says which entries to read. Its zero value is all.
type Filter struct {
	Sandbox   string
	Sandboxes []string // of any of these; nil is of all and of none, empty is nothing
	Kinds     []Kind   // of any of these; none is all
	// From is the first number, and Before the one behind the last; 0 is no
	// bound.
	From, Before int64
	// Since is inclusive and Until is not.
	Since, Until time.Time
	// Limit is how many at most, the first ones or, with Newest, the last
	// ones; 0 is all.
	Limit  int
	Newest bool
}

const readBatch = 512

// Read calls yield for each entry that matches the filter, in order, until yield returns an
// error, which Read returns. With follow, Read continues with entries as any process writes
// them, until ctx or following ends.
func (l *Log) Read(ctx context.Context, filter Filter, follow bool, yield func(Entry) error) error {
	return l.readLines(ctx, filter, follow, func(e Entry, _ []byte) error { return yield(e) })
}

// EndFollowing ends everybody who follows, after what there is: a server that
// ends need not wait for them.
func (l *Log) EndFollowing() { l.pulse.end() }

func (l *Log) readLines(ctx context.Context, filter Filter, follow bool, yield func(Entry, []byte) error) error {
	if filter.Newest && filter.Limit <= 0 {
		return refused("the newest entries are asked for, and not how many")
	}
	// Entries that this process has queued count as written for this reader.
	if err := l.queue.flush(ctx); err != nil && ctx.Err() != nil {
		return err
	}
	grown, stop, err := l.pulse.watch(follow)
	if err != nil {
		return err
	}
	defer stop()
	after, left := filter.From-1, filter.Limit
	for {
		var changed <-chan struct{}
		if follow {
			changed = grown() // before the look, so that nothing is missed
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
			// The last ones were read; from here on it is all that comes.
			filter.Newest, filter.Limit, left = false, 0, 0
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// readBatch reads what follows an entry, and says behind which to go on.
func (l *Log) readBatch(ctx context.Context, filter Filter, after int64, left int, yield func(Entry, []byte) error) (n int, last int64, err error) {
	spots, last, broken, err := l.find(ctx, filter, after, left)
	if err != nil {
		return 0, after, fmt.Errorf("read record: %w", err)
	}
	var f *os.File
	var in *lines // of f
	var open int64 = -1
	defer func() {
		if f != nil {
			f.Close()
		}
	}()
	for _, s := range spots {
		if err := ctx.Err(); err != nil {
			return n, after, err
		}
		if s.first != open {
			if f != nil {
				f.Close()
			}
			if f, err = openAt(l.path(segmentName(s.first)), os.O_RDONLY); errors.Is(err, fs.ErrNotExist) {
				f, open, err = nil, -1, nil
				n++
				continue // dropped since, as too old
			} else if err != nil {
				return n, after, fmt.Errorf("read record: %w", err)
			}
			in, open = newLines(f, s.offset), s.first
		}
		in.seek(s.offset)
		line, err := in.next()
		if err != nil {
			return n, after, fmt.Errorf("read record: entry %d: %w", s.seq, err)
		}
		e, err := decode(line)
		if err == nil && e.Seq != s.seq {
			err = damaged("entry %d is where entry %d should be", e.Seq, s.seq)
		}
		if err != nil {
			return n, after, fmt.Errorf("read record: entry %d: %w", s.seq, err)
		}
		if err := yield(e, line); err != nil {
			return n, after, err
		}
		n++
	}
	if broken != nil && len(spots) < readBatch {
		return n, last, fmt.Errorf("read record: %w", broken)
	}
	return n, last, nil
}
