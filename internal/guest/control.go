package guest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/crannog/crannog/internal/guest/files"
	"github.com/crannog/crannog/internal/guest/tree"
)

// maxUpdate limits the body of a control request.
const maxUpdate = 1 << 20

// maxPaths limits the body of a request that lists files.
const maxPaths = 64 << 20

// maxTick is the maximum time between checks of the end time. Timers count only the time while the
// machine runs, but EndAt is a time of day. The two differ after the machine was suspended or its
// clock was set.
const maxTick = time.Minute

// grace is how long to wait, after the end time, for a new end time or for Hold. A restored sandbox
// notices that its end time has passed before it learns that it was restored.
const grace = 2 * time.Second

// control serves requests of the server. Without the control token the answer is 404, as if these
// paths did not exist.
func (g *Guest) control(w http.ResponseWriter, r *http.Request) {
	if !sameToken(r.Header.Get(ControlHeader), g.controlToken()) {
		files.BoundRest(w)
		notFound(w, r)
		return
	}
	switch {
	case r.URL.Path == PathReady && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Path == PathLookups && r.Method == http.MethodGet && g.opts.Lookups != nil:
		// The header is already sent, so an error here only means that the caller has disconnected.
		_ = json.NewEncoder(w).Encode(g.opts.Lookups())
	case r.URL.Path == PathUpdate && r.Method == http.MethodPost:
		g.update(w, r)
	case r.URL.Path == PathClaim && r.Method == http.MethodPost && g.opts.Claim != nil:
		g.claim(w, r)
	case r.URL.Path == PathTree && r.Method == http.MethodPost:
		stream(g, w, r, tree.List)
	case r.URL.Path == PathPack && r.Method == http.MethodPost:
		stream(g, w, r, tree.Pack)
	case r.URL.Path == PathCensus && r.Method == http.MethodGet:
		g.census(w)
	case r.URL.Path == PathSignal && r.Method == http.MethodPost:
		g.signal(w, r)
	default:
		notFound(w, r)
	}
}

// update changes the running guest.
func (g *Guest) update(w http.ResponseWriter, r *http.Request) {
	var u Update
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxUpdate)).Decode(&u); err != nil {
		fail(w, http.StatusBadRequest, "malformed update")
		return
	}
	g.Apply(u)
	w.WriteHeader(http.StatusNoContent)
}

// claim configures a warm sandbox for its first user.
func (g *Guest) claim(w http.ResponseWriter, r *http.Request) {
	cfg, _, err := Decode(http.MaxBytesReader(w, r.Body, maxConfig))
	if err != nil || cfg.Renew != Claimed || cfg.Archive {
		fail(w, http.StatusBadRequest, "malformed claim")
		return
	}
	if err := g.opts.Claim(r.Context(), cfg); err != nil {
		fail(w, http.StatusConflict, err.Error())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// stream answers with files of the sandbox.
func stream[R any](g *Guest, w http.ResponseWriter, r *http.Request, write func(context.Context, io.Writer, R) error) {
	var req R
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxPaths))
	body.DisallowUnknownFields()
	if err := body.Decode(&req); err != nil {
		fail(w, http.StatusBadRequest, "malformed request")
		return
	}
	out := &startedWriter{w: w}
	if err := write(r.Context(), out, req); err != nil {
		g.log.Warn("files were not sent", "err", err)
		if !out.started {
			fail(w, http.StatusConflict, err.Error())
			return
		}
		// The status is already sent. Cutting the connection tells the server that the stream is
		// incomplete.
		panic(http.ErrAbortHandler)
	}
}

// startedWriter records whether anything has been written.
type startedWriter struct {
	w       io.Writer
	started bool
}

// Write implements io.Writer.
func (b *startedWriter) Write(p []byte) (int, error) {
	b.started = true
	return b.w.Write(p)
}

// Apply changes a running guest.
func (g *Guest) Apply(u Update) {
	g.mu.Lock()
	if u.AccessToken != "" {
		g.cfg.AccessToken = u.AccessToken
	}
	if u.Env != nil {
		g.env = environment(g.cfg, u.Env)
	}
	g.mu.Unlock()
	if u.EndAt != nil {
		g.setEnd(*u.EndAt)
	}
}

// Hold disables the end time until Renew sets a new one. A sandbox that was just restored still has
// its old end time, and the steps before Renew may take long.
func (g *Guest) Hold() { g.setEnd(time.Time{}) }

// setEnd replaces the end time. Zero means never.
func (g *Guest) setEnd(at time.Time) {
	if g.opts.End == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer != nil {
		g.timer.Stop()
	}
	g.endAt, g.overdue = at, false
	if !at.IsZero() && !g.closed {
		g.timer = time.AfterFunc(nextTick(at), g.tick)
	}
}

// tick ends the sandbox if its end time has passed, otherwise it waits again.
func (g *Guest) tick() {
	g.mu.Lock()
	if g.endAt.IsZero() || g.closed || g.ended {
		g.mu.Unlock()
		return
	}
	if left := nextTick(g.endAt); left > 0 {
		g.overdue = false
		g.timer = time.AfterFunc(left, g.tick)
		g.mu.Unlock()
		return
	}
	if !g.overdue {
		g.overdue = true
		g.timer = time.AfterFunc(grace, g.tick)
		g.mu.Unlock()
		return
	}
	g.ended = true
	g.mu.Unlock()
	g.opts.End()
}

// nextTick returns how long to wait before checking the clock again.
func nextTick(at time.Time) time.Duration {
	return min(time.Until(at.Round(0)), maxTick)
}
