package interpreter

import (
	"bytes"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// writeTimeout is how long a client may take to read a line.
const writeTimeout = time.Minute

// stream writes the lines of one execution to its client. It sends status and headers with the
// first line, so that an earlier error can still be an HTTP error. It is safe for concurrent use.
type stream struct {
	w http.ResponseWriter

	mu     sync.Mutex
	last   time.Time // time of the last line
	opened bool      // the answer has begun
	closed bool      // the client has disconnected or the last line was written
	buf    bytes.Buffer
}

func newStream(w http.ResponseWriter) *stream { return &stream{w: w, last: time.Now()} }

// The lines of the protocol.
type (
	countLine struct {
		Type  string `json:"type"`
		Count int    `json:"execution_count"`
	}
	textLine struct {
		Type string `json:"type"`
		Text string `json:"text"`
		Time string `json:"timestamp"`
	}
	resultLine struct {
		Type string `json:"type"`
		result
	}
	errorLine struct {
		Type string `json:"type"`
		execError
	}
	plainLine struct {
		Type string `json:"type"`
	}
)

func (st *stream) count(n int)                { st.write(countLine{"number_of_executions", n}) }
func (st *stream) result(r result)            { st.write(resultLine{"result", r}) }
func (st *stream) fail(e execError)           { st.write(errorLine{"error", e}) }
func (st *stream) text(kind string, b []byte) { st.write(textLine{kind, string(b), stamp(time.Now())}) }

// end ends the stream. Later lines are discarded, because the ResponseWriter must not be used after
// the handler has returned.
func (st *stream) end() {
	st.write(plainLine{"end_of_execution"})
	st.discard()
	// The connection may serve other requests, to which the deadline of this one must not apply.
	_ = http.NewResponseController(st.w).SetWriteDeadline(time.Time{})
}

// discard discards all later lines.
func (st *stream) discard() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
}

// keepalive writes a line if none was written for the given time. It returns how long to wait
// before the next call.
func (st *stream) keepalive(silence time.Duration) time.Duration {
	st.mu.Lock()
	quiet := time.Since(st.last)
	st.mu.Unlock()
	if quiet < silence {
		return silence - quiet
	}
	st.write(plainLine{"keepalive"})
	return silence
}

// started reports whether the response has begun.
func (st *stream) started() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.opened
}

// write writes one line.
func (st *stream) write(line any) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return
	}
	st.buf.Reset()
	enc := json.NewEncoder(&st.buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(line); err != nil {
		// Only raw JSON from a worker could fail, and that has been parsed already.
		panic("encode line: " + err.Error())
	}
	if !st.opened {
		st.opened = true
		st.w.Header().Set("Content-Type", "application/x-ndjson")
		st.w.Header().Set("Cache-Control", "no-cache")
		st.w.WriteHeader(http.StatusOK)
	}
	st.last = time.Now()
	ctl := http.NewResponseController(st.w)
	// Without a deadline, a client that neither reads nor disconnects would hold its context for
	// ever. If no deadline can be set, there is no connection to wait for.
	_ = ctl.SetWriteDeadline(st.last.Add(writeTimeout))
	// A failed write needs no report, because the client has disconnected and the request's context
	// ends.
	if _, err := st.w.Write(st.buf.Bytes()); err != nil {
		st.closed = true
		return
	}
	if err := ctl.Flush(); err != nil {
		st.closed = true
	}
	if st.buf.Cap() > 1<<20 {
		st.buf = bytes.Buffer{}
	}
}

// stamp formats a time in the format of notebook clients.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z07:00") }
