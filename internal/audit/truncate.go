package audit

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/crannog/crannog/internal/host/durable"
)

// truncation is the data of an entry of kind Truncated.
type truncation struct {
	First int64  `json:"first"` // number of the first entry that is kept
	Size  int64  `json:"size"`  // size of the log before this entry
	Root  string `json:"root"`  // root hash of the log before this entry
}

// Truncate drops entries that are older than a time, in whole segments. Before that, it
// writes a signed entry that lists what is dropped. The hashes of dropped entries remain, so that
// the remaining log still matches all older tree heads.
func (l *Log) Truncate(ctx context.Context, before time.Time) error {
	return l.truncate(ctx, before, -1)
}

// retain drops the entries that exceed KeepAge or KeepBytes.
func (l *Log) retain(ctx context.Context) error {
	var before time.Time
	if l.opts.KeepAge > 0 {
		before = time.Now().Add(-l.opts.KeepAge)
	}
	return l.truncate(ctx, before, l.opts.KeepBytes)
}

// truncate drops the segments that end before a time or exceed keepBytes.
func (l *Log) truncate(ctx context.Context, before time.Time, keepBytes int64) error {
	hasOld := false
	err := l.locked(ctx, func() error {
		drop, _, err := l.outdated(before, keepBytes)
		hasOld = len(drop) > 0
		return err
	})
	if err != nil || !hasOld {
		return l.writeFault(err)
	}
	if ready, err := l.indexed(ctx); err != nil || !ready {
		return err
	}
	return l.writeFault(l.locked(ctx, func() error {
		drop, first, err := l.outdated(before, keepBytes)
		if err != nil || len(drop) == 0 {
			return err
		}
		h := &l.head
		root, err := tlog.TreeHash(h.size, treeOf(h.hashes, h.size))
		if err != nil {
			return err
		}
		p, err := encode(Draft{Kind: Truncated, Actor: "server", Data: truncation{first, h.size, root.String()}}, time.Now())
		if err != nil {
			return err
		}
		if err := l.write([]encodedEntry{p}); err != nil {
			return err
		}
		if err := l.signLocked(); err != nil {
			return err
		}
		// Remove the oldest first, so that a crash leaves no gap.
		for _, s := range drop {
			l.opts.step("drop")
			if err := os.Remove(l.path(segmentName(s))); err != nil {
				return err
			}
		}
		l.log.Info("old entries dropped", "first", first)
		return durable.SyncDir(l.dir)
	}))
}

// indexTimeout limits how long dropping old entries waits for the index. If the index is not
// complete by then, the next run continues.
const indexTimeout = 20 * time.Second

// indexed updates the index. After entries are dropped, only the index has the positions up to
// which sources were read; without them, lines would be ingested twice. If the index cannot be
// written, entries are dropped anyway, because a full disk is worse than duplicate entries.
func (l *Log) indexed(ctx context.Context) (ready bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, indexTimeout)
	defer cancel()
	_, err = l.index.current(bounded)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return false, ctx.Err()
	case bounded.Err() != nil:
		l.log.Info("old entries are dropped later: the index is behind")
		return false, nil
	default:
		l.log.Warn("read positions of event files may be lost", "err", err)
	}
	return true, nil
}

// outdated returns the segments to drop, and the first remaining entry. The newest segment is never
// dropped.
func (l *Log) outdated(before time.Time, keepBytes int64) (drop []int64, first int64, err error) {
	segments, err := listSegments(l.dir)
	if err != nil || len(segments) < 2 {
		return nil, 0, err
	}
	sizes := make([]int64, len(segments))
	var total int64
	for i, s := range segments {
		info, err := os.Lstat(l.path(segmentName(s)))
		if err != nil {
			return nil, 0, err
		}
		sizes[i] = info.Size()
		total += info.Size()
	}
	for i, s := range segments[:len(segments)-1] {
		old, err := l.endsBefore(s, before)
		if err != nil {
			return nil, 0, err
		}
		if !old && (keepBytes < 0 || total <= keepBytes) {
			break
		}
		total -= sizes[i]
		drop, first = append(drop, s), segments[i+1]
	}
	return drop, first, nil
}

// endsBefore reports whether all entries of a segment are older than a time.
func (l *Log) endsBefore(segment int64, before time.Time) (bool, error) {
	if before.IsZero() {
		return false, nil
	}
	f, err := openAt(l.path(segmentName(segment)), os.O_RDONLY)
	if err != nil {
		return false, err
	}
	line, _, err := lastLine(f)
	if err = errors.Join(err, f.Close()); err != nil || line == nil {
		return false, err
	}
	e, err := decode(line)
	return err == nil && e.Time.Before(before), err
}
