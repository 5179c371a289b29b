package audit

import (
	"context"
	"time"
)

// Append implements Recorder.
func (l *Log) Append(ctx context.Context, drafts ...Draft) error {
	if len(drafts) == 0 {
		return nil
	}
	g, err := newGroup(drafts)
	if err != nil {
		return err
	}
	return l.queue.do(ctx, g)
}

// Note implements Recorder.
func (l *Log) Note(drafts ...Draft) error {
	if len(drafts) == 0 {
		return nil
	}
	g, err := newGroup(drafts)
	if err != nil {
		return err
	}
	return l.queue.put(g)
}

// newGroup validates and encodes the drafts of one call.
func newGroup(drafts []Draft) (*group, error) {
	if len(drafts) > maxBatch {
		return nil, invalidEntry("%d entries in one call are more than the limit of %d", len(drafts), maxBatch)
	}
	g, now := &group{encoded: make([]encodedEntry, len(drafts))}, time.Now()
	for i, d := range drafts {
		p, err := encode(d, now)
		if err != nil {
			return nil, err
		}
		g.encoded[i] = p
		g.bytes += len(p.rest)
	}
	if g.bytes > maxBatchBytes {
		return nil, invalidEntry("entries of %d bytes in one call are more than the limit of %d", g.bytes, maxBatchBytes)
	}
	return g, nil
}
