package live

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/frontend/entrydata"
	v1 "github.com/crannog/crannog/internal/frontend/v1"
)

const (
	// maxLines and maxLineBytes bound the buffered entries. A stream that is further behind reads
	// the audit log.
	maxLines     = 4096
	maxLineBytes = 4 << 20
	// batch is the number of entries sent at once.
	batch = 512
	// maxBehind bounds the entries of all sandboxes that a returning client gets. A page cannot
	// show more, and requests earlier ones when it needs them.
	maxBehind = 20_000
	// retry is the first pause after a failed read, and maxRetryDelay the longest.
	retry         = time.Second
	maxRetryDelay = 30 * time.Second
)

// line is a buffered entry. It is encoded once for all streams.
type line struct {
	entry audit.Entry
	once  sync.Once
	shown []byte
	flow  []byte // the entry as a network flow, if it is one
}

// show encodes the entry for streams.
func (n *line) show() ([]byte, []byte) {
	n.once.Do(func() {
		var err error
		if n.shown, err = json.Marshal(v1.ShowEntry(n.entry)); err != nil {
			// Data in the audit log is always valid JSON.
			n.shown = nil
		}
		if n.entry.Kind != audit.Flow {
			return
		}
		f, ok := entrydata.Of(n.entry.Kind, n.entry.Data).(egress.Record)
		if !ok {
			return
		}
		f.Sandbox = n.entry.Sandbox
		n.flow, _ = json.Marshal(v1.ShowFlow(f)) // strings and numbers always marshal
	})
	return n.shown, n.flow
}

// lines are the newest entries, without gaps.
type lines struct {
	known bool  // whether the end of the log was found
	next  int64 // number of the first unread entry
	// failures counts how often reading the audit log has failed.
	failures int64
	ring     []*line
	bytes    int
}

func newLines() *lines { return &lines{} }

// newest returns the number of the last entry that was read, or -1.
func (n *lines) newest() int64 { return n.next - 1 }

func (n *lines) first() int64 { return n.next - int64(len(n.ring)) }

func (n *lines) add(e audit.Entry) {
	n.ring = append(n.ring, &line{entry: e})
	n.bytes += len(e.Data)
	n.next = e.Seq + 1
	drop := 0
	for len(n.ring)-drop > maxLines || n.bytes > maxLineBytes && drop < len(n.ring)-1 {
		n.bytes -= len(n.ring[drop].entry.Data)
		n.ring[drop] = nil
		drop++
	}
	n.ring = n.ring[drop:]
}

// skip drops the buffered lines and continues at next.
func (n *lines) skip(next int64) { n.ring, n.bytes, n.next = nil, 0, next }

// after returns at most batch entries after a number. It returns false if they are not buffered any
// more.
func (n *lines) after(seq int64) ([]*line, bool) {
	if seq+1 < n.first() {
		return nil, false
	}
	from := max(0, seq+1-n.first())
	return slices.Clone(n.ring[min(from, int64(len(n.ring))):min(from+batch, int64(len(n.ring)))]), true
}

// follow reads the audit log as it is written.
func (l *Live) follow(ctx context.Context) {
	for delay := retry; ctx.Err() == nil; delay = min(2*delay, maxRetryDelay) {
		l.mu.Lock()
		from, known := l.lines.next, l.lines.known
		l.mu.Unlock()
		var err error
		if !known {
			if err = l.readBack(ctx); err == nil {
				continue
			}
		} else if err = l.deps.Audit.Read(ctx, audit.Filter{From: from}, true, l.take); err == nil {
			return // following has ended, with the server
		}
		if ctx.Err() != nil {
			return
		}
		l.deps.Log.Warn("console: the audit log cannot be followed", "err", err)
		l.mu.Lock()
		l.lines.failures++
		l.wake()
		l.mu.Unlock()
		pause(ctx, delay)
	}
}

// take buffers one entry.
func (l *Live) take(e audit.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Seq != l.lines.next {
		l.lines.skip(e.Seq) // older entries were dropped by retention
	}
	l.lines.add(e)
	l.rows.update(e)
	for _, s := range l.streams {
		if s.topics.all || e.Sandbox != "" && (slices.Contains(s.topics.records, e.Sandbox) ||
			e.Kind == audit.Flow && slices.Contains(s.topics.networks, e.Sandbox)) {
			s.notify()
		}
	}
	return nil
}

// sendEntries writes the next entries, and reports whether there are more.
func (l *Live) sendEntries(s *stream, out *frames) (more bool, err error) {
	l.mu.Lock()
	t, known := s.topics, l.lines.known
	if !t.entries() {
		s.entry, s.resumed = l.lines.newest(), false
		l.mu.Unlock()
		return false, nil
	}
	seq, resumed, newest := s.entry, s.resumed, l.lines.newest()
	if s.failures != l.lines.failures {
		s.failures = l.lines.failures
		out.event("gap", gap{"record", "the audit log cannot be read now; the missing entries will follow"})
	}
	l.mu.Unlock()
	if !known {
		return false, nil // without the end of the log, new entries cannot be distinguished from old ones
	}
	if resumed {
		if seq, err = l.catchUp(s, out, seq, newest); err != nil {
			return false, err
		}
	}
	if t.all && newest-seq > maxBehind {
		out.event("gap", gap{"record", fmt.Sprintf("%d entries are not shown; they are in the audit log after number %d", newest-maxBehind-seq, seq)})
		seq = newest - maxBehind
	}
	l.mu.Lock()
	found, here := l.lines.after(seq)
	first, newest := l.lines.first(), l.lines.newest()
	l.mu.Unlock()
	last := min(seq+int64(len(found)), newest)
	if !here {
		if found, last, err = l.read(s.ctx, t, seq, first); err != nil {
			return false, err
		}
	}
	for _, n := range found {
		t.send(n, out)
	}
	l.mu.Lock()
	s.entry, s.resumed = max(last, seq), false
	l.mu.Unlock()
	return last < newest, nil
}

// catchUp checks the number of the last entry that a returning client claims to have received. It
// returns the number after which to continue, and reports gaps to the client.
func (l *Live) catchUp(s *stream, out *frames, seq, newest int64) (int64, error) {
	if seq > newest {
		// The client's audit log was removed, and another one started.
		out.event("gap", gap{"record", "this is another audit log than before"})
		return newest, nil
	}
	first := newest + 1
	err := l.deps.Audit.Read(s.ctx, audit.Filter{Limit: 1}, false, func(e audit.Entry) error {
		first = e.Seq
		return nil
	})
	if err != nil {
		return seq, err
	}
	if first > seq+1 {
		out.event("gap", gap{"record", "the oldest missed entries are no longer available"})
		seq = first - 1
	}
	return seq, nil
}

// read reads at most batch entries that are not buffered, and returns the number up to which it
// read.
func (l *Live) read(ctx context.Context, t topics, seq, before int64) (found []*line, last int64, err error) {
	f := audit.Filter{Sandboxes: t.of(), From: seq + 1, Before: before, Limit: batch}
	err = l.deps.Audit.Read(ctx, f, false, func(e audit.Entry) error {
		found = append(found, &line{entry: e})
		return nil
	})
	last = before - 1
	if len(found) == batch {
		last = found[batch-1].entry.Seq
	}
	return found, last, err
}

// send writes an entry, if it belongs to these topics. The entry's number is sent with the last
// event derived from it, so that an interrupted client gets all of these events or none.
func (t topics) send(n *line, out *frames) {
	id := n.entry.Sandbox
	record := t.all || id != "" && slices.Contains(t.records, id)
	network := id != "" && slices.Contains(t.networks, id)
	if !record && !network {
		return
	}
	shown, flow := n.show()
	network = network && flow != nil
	switch {
	case shown == nil, !record && !network:
	case !record:
		out.id(n.entry.Seq)
		out.raw("flow", flow)
	default:
		if network {
			out.raw("flow", flow)
		}
		out.id(n.entry.Seq)
		out.raw("entry", bytes.TrimSpace(shown))
	}
}
