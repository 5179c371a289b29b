package live

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"
)

const (
	// heartbeatEvery is how often a silent stream sends a heartbeat. A page reconnects if it has
	// received nothing for twice that time.
	heartbeatEvery = 15 * time.Second
	// writeTimeout bounds how long a client may take to read one write, so that a client that
	// stopped reading does not hold a connection for ever.
	writeTimeout = 30 * time.Second
	// collectDelay is how long a stream collects events before it sends, so that a burst needs few
	// writes.
	collectDelay = 25 * time.Millisecond
)

// stream is the stream of one page. It contains no events, only its position: the events are in
// shared buffers, or in the audit log.
type stream struct {
	id      string
	session string
	ctx     context.Context
	cancel  context.CancelFunc
	changed chan struct{}

	// Live.mu guards the fields below.
	topics      topics
	entry       int64 // the last entry that was processed
	resumed     bool  // entry is the client's value, not yet checked
	failures    int64 // failures of the audit log that the client was informed of
	rowsVersion int64 // version of the fleet that was sent
	meter       int64 // the last measurement that was sent
	event       int64 // number of the next approval event to send; -1 until the list was sent
}

func (s *stream) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// setTopics changes the topics. Audit log entries begin after newest, unless the client resumes at
// its own position. A client that adds the fleet or the approvals first gets the complete list.
func (s *stream) setTopics(t topics, newest int64) {
	if t.entries() && !s.topics.entries() && !s.resumed {
		s.entry = newest
	}
	if t.fleet && !s.topics.fleet {
		s.rowsVersion = 0
	}
	if t.approvals && !s.topics.approvals {
		s.event = -1
	}
	s.topics = t
}

// stream answers a request with a stream of events. It returns an error only before anything is
// sent; later errors end the stream.
func (l *Live) stream(w http.ResponseWriter, r *http.Request, session string) error {
	a, err := readSubscription(r)
	if err != nil {
		return err
	}
	s := &stream{session: session, changed: make(chan struct{}, 1), event: -1}
	s.ctx, s.cancel = context.WithCancel(r.Context())
	defer s.cancel()
	if err := l.join(s); err != nil {
		return err
	}
	defer l.leave(s)
	l.mu.Lock()
	s.entry, s.resumed, s.failures = l.lines.newest(), a.resume, l.lines.failures
	if a.resume {
		s.entry = a.after
	}
	s.setTopics(a.topics, s.entry)
	l.mu.Unlock()
	first, known := l.resumePoint(s)

	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies that collect data would delay it
	w.WriteHeader(http.StatusOK)
	out := &frames{w: w, rc: http.NewResponseController(w)}
	out.text("retry: 1000\n")
	// With this ID, a client that is interrupted before the first entry misses no entry.
	if known {
		out.id(first)
	}
	out.event("hello", hello{s.id, l.deps.Started, l.deps.Version, a.resume})
	l.serve(s, out)
	return nil
}

type hello struct {
	Stream  string    `json:"stream"`
	Started time.Time `json:"server_started"`
	Version string    `json:"version"`
	Resumed bool      `json:"resumed"`
}

// serve sends events until the client leaves or the stream is closed.
func (l *Live) serve(s *stream, out *frames) {
	ticker := time.NewTicker(cmp.Or(l.deps.Heartbeat, heartbeatEvery))
	defer ticker.Stop()
	for {
		more, err := l.collect(s, out)
		if err != nil && s.ctx.Err() == nil {
			l.deps.Log.Warn("console stream broke off", "err", err)
		}
		if err != nil || out.flush() != nil || s.ctx.Err() != nil {
			return
		}
		if more {
			continue
		}
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
			// This is an event and not a comment, because pages do not see comments and have to
			// detect a dead stream.
			if at, known := l.resumePoint(s); known {
				out.id(at)
			}
			out.event("beat", struct{}{})
		case <-s.changed:
			pause(s.ctx, collectDelay)
		}
	}
}

// resumePoint returns the entry after which the stream can be resumed, if known.
func (l *Live) resumePoint(s *stream) (int64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.resumed {
		return s.entry, true
	}
	if !s.topics.entries() {
		return l.lines.newest(), l.lines.known
	}
	return s.entry, l.lines.known
}

// collect collects events that the stream has not sent yet, and reports whether more are available
// at once.
func (l *Live) collect(s *stream, out *frames) (more bool, err error) {
	l.mu.Lock()
	if s.topics.fleet {
		l.rows.send(s, out)
	}
	if len(s.topics.watch) > 0 {
		l.meters.send(s, out)
	}
	if s.topics.approvals {
		l.approvals.send(s, out)
	}
	l.mu.Unlock()
	return l.sendEntries(s, out)
}

// gap informs the client that events are missing, and where or when they can be found.
type gap struct {
	Topic string `json:"topic"`
	Text  string `json:"text"`
}

// frames are the events to send. Only the goroutine of the stream's request uses them.
type frames struct {
	w   io.Writer
	rc  *http.ResponseController
	buf bytes.Buffer
}

func (f *frames) text(s string) { f.buf.WriteString(s) }

// id names the entry after which the stream can be resumed.
func (f *frames) id(seq int64) {
	f.text("id: ")
	f.buf.Write(strconv.AppendInt(f.buf.AvailableBuffer(), seq, 10))
	f.text("\n")
}

// event adds an event. JSON contains no newline, so the data is one line whatever text a sandbox
// chose, and invalid UTF-8 is replaced.
func (f *frames) event(name string, data any) {
	b, err := json.Marshal(data)
	if err != nil {
		// All types that are sent can be encoded.
		b, name = []byte(`{"topic":"all","text":"an event could not be encoded"}`), "gap"
	}
	f.raw(name, b)
}

func (f *frames) raw(name string, data []byte) {
	f.text("event: ")
	f.text(name)
	f.text("\ndata: ")
	f.buf.Write(data)
	f.text("\n\n")
}

// maxKeptBuffer bounds the memory that a stream holds between two writes.
const maxKeptBuffer = 256 << 10

func (f *frames) flush() error {
	if f.buf.Len() == 0 {
		return nil
	}
	if f.rc.SetWriteDeadline(time.Now().Add(writeTimeout)) == nil {
		// The connection may serve other requests afterwards.
		defer func() { _ = f.rc.SetWriteDeadline(time.Time{}) }()
	}
	if _, err := f.w.Write(f.buf.Bytes()); err != nil {
		return err
	}
	if f.buf.Cap() > maxKeptBuffer {
		f.buf = bytes.Buffer{}
	}
	f.buf.Reset()
	return f.rc.Flush()
}
