package guest

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/crannog/crannog/internal/guest/files"
)

// maxUpdate bounds a control request's body.
const maxUpdate = 1 << 20

// maxTick is the longest that the end is not looked at. Timers count time
// that passed for the machine, and EndAt is a time of day: the two differ
// after the machine slept or its clock was set.
const maxTick = time.Minute

// control answers the daemon. To everybody else these paths do not exist.
func (g *Guest) control(w http.ResponseWriter, r *http.Request) {
	if !sameToken(r.Header.Get(ControlHeader), g.cfg.ControlToken) {
		files.Hurry(w)
		notFound(w, r)
		return
	}
	switch {
	case r.URL.Path == PathReady && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Path == PathAsked && r.Method == http.MethodGet && g.asked != nil:
		// The header is sent by then: a caller that left is no error of ours.
		_ = json.NewEncoder(w).Encode(Asked{Names: g.asked()})
	case r.URL.Path == PathUpdate && r.Method == http.MethodPost:
		g.update(w, r)
	default:
		notFound(w, r)
	}
}

func (g *Guest) update(w http.ResponseWriter, r *http.Request) {
	var u Update
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxUpdate)).Decode(&u); err != nil {
		fail(w, http.StatusBadRequest, "malformed update")
		return
	}
	g.Apply(u)
	w.WriteHeader(http.StatusNoContent)
}

// Apply changes a running guest.
func (g *Guest) Apply(u Update) {
	g.mu.Lock()
	if u.AccessToken != "" {
		g.token = u.AccessToken
	}
	if u.Env != nil {
		g.env = environment(g.cfg, u.Env)
	}
	g.mu.Unlock()
	if u.EndAt != nil {
		g.setEnd(*u.EndAt)
	}
}

// setEnd replaces the time of the end; zero is never.
func (g *Guest) setEnd(at time.Time) {
	if g.end == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer != nil {
		g.timer.Stop()
	}
	g.endAt = at
	if !at.IsZero() && !g.closed {
		g.timer = time.AfterFunc(tick(at), g.tick)
	}
}

// tick ends the sandbox, or waits on.
func (g *Guest) tick() {
	g.mu.Lock()
	if g.endAt.IsZero() || g.closed || g.ended {
		g.mu.Unlock()
		return
	}
	if left := tick(g.endAt); left > 0 {
		g.timer = time.AfterFunc(left, g.tick)
		g.mu.Unlock()
		return
	}
	g.ended = true
	g.mu.Unlock()
	g.end()
}

// tick returns how long to wait before looking at the clock again.
func tick(at time.Time) time.Duration {
	return min(time.Until(at.Round(0)), maxTick)
}
