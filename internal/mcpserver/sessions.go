package mcpserver

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog/internal/fault"
)

// Bounds of sessions. Few clients end theirs: most just leave.
const (
	maxSessions = 32 // of a key
	// sessionIdle is how long a session lives without a call and without a
	// client that listens. It is longer than what was said is kept, so that a
	// client whose connection broke can take all of that up.
	sessionIdle = 15 * time.Minute
)

// use is what is known of how a session is used.
type use struct {
	last    time.Time // the end of the last request or call
	calls   int       // POST and DELETE requests, and calls, that are under way
	streams int       // GET requests, on which a client listens
	ended   bool      // it was chosen to end: it takes no more requests
}

// before reports whether a session makes room before another: one whose client
// is not connected first, then the longest idle.
func (u *use) before(other *use) bool {
	if (u.streams == 0) != (other.streams == 0) {
		return u.streams == 0
	}
	return u.last.Before(other.last)
}

// open calls do for each session of each endpoint that has had a call and has
// not been chosen to end. d.mu must be held.
func (d *keyDesk) open(do func(*mcp.ServerSession, *use)) {
	for _, e := range d.endpoints {
		for s := range e.srv.Sessions() {
			if s.ID() == "" {
				continue // it ends with its request
			}
			// One without a call is still being connected, and counts as arriving.
			// The library fails with a panic when such a session is closed; if it
			// gets no call, the library closes it itself.
			if u := d.uses[s.ID()]; u != nil && !u.ended {
				do(s, u)
			}
		}
	}
}

// sessions counts those that are open. d.mu must be held.
func (d *keyDesk) sessions() (n int) {
	d.open(func(*mcp.ServerSession, *use) { n++ })
	return n
}

// arrival is a session that is about to begin. It counts as one until it does,
// so that many that begin at once are bounded as well.
type arrival struct{ done func() }

type arrivalKey struct{}

// admit notes that a request is under way, until leave is called. A request
// that begins a session needs room for it, for which the session that has been
// idle for longest is ended. One with a call under way never is.
func (d *keyDesk) admit(v View, r *http.Request) (_ *http.Request, leave func(), err error) {
	id := r.Header.Get("Mcp-Session-Id")
	switch {
	case v.Stateless:
		return r, func() {}, nil
	case id != "":
		leave, err = d.visit(id, r.Method == http.MethodGet)
		return r, leave, err
	case r.Method != http.MethodPost:
		return r, func() {}, nil
	}
	d.mu.Lock()
	var out *mcp.ServerSession
	if n := d.sessions() + d.arriving; n >= maxSessions {
		if out = d.idlest(); out == nil {
			d.mu.Unlock()
			return r, nil, fault.Newf(fault.Exhausted, "too_many_sessions", "this key has %d sessions, and all are in use", maxSessions).
				WithHint("end some with DELETE, or wait until a call of one ends")
		}
		d.uses[out.ID()].ended = true
	}
	d.arriving++
	d.mu.Unlock()
	if out != nil {
		_ = out.Close() // its client has left, or begins anew
	}
	once := sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.arriving--
	})
	return r.WithContext(context.WithValue(r.Context(), arrivalKey{}, arrival{once})), once, nil
}

// idlest returns the session that makes room, nil if all have a call under way.
// d.mu must be held.
func (d *keyDesk) idlest() (out *mcp.ServerSession) {
	var first *use
	d.open(func(s *mcp.ServerSession, u *use) {
		if u.calls == 0 && (first == nil || u.before(first)) {
			out, first = s, u
		}
	})
	return out
}

// visit notes that a request of a session is under way. An unknown session
// leaves no trace: its ID is whatever the client sent.
func (d *keyDesk) visit(id string, listens bool) (leave func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.uses[id]
	if u == nil {
		return func() {}, nil
	}
	if u.ended {
		return nil, fault.New(fault.NotFound, "session_not_found", "this session has ended").WithHint("begin another one with initialize")
	}
	under := &u.calls
	if listens {
		under = &u.streams
	}
	*under++
	u.last = time.Now()
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		*under--
		u.last = time.Now()
	}, nil
}

// counted notes that a call is under way for as long as it is, which may be
// longer than its request: a call continues when its connection breaks.
func (d *keyDesk) counted(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		s := req.GetSession()
		if s == nil || s.ID() == "" {
			return next(ctx, method, req)
		}
		d.mu.Lock()
		u := d.uses[s.ID()]
		if u == nil {
			u = &use{}
			d.uses[s.ID()] = u
		}
		u.calls++
		u.last = time.Now()
		d.mu.Unlock()
		if a, ok := ctx.Value(arrivalKey{}).(arrival); ok {
			a.done()
		}
		defer func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			u.calls--
			u.last = time.Now()
		}()
		return next(ctx, method, req)
	}
}

// endIdle ends sessions that have been idle for too long, and forgets those
// that are not there any more.
func (d *keyDesk) endIdle() {
	var idle []*mcp.ServerSession
	there := map[string]bool{}
	d.mu.Lock()
	d.open(func(s *mcp.ServerSession, u *use) {
		there[s.ID()] = true
		if u.calls == 0 && u.streams == 0 && time.Since(u.last) > sessionIdle {
			u.ended = true
			idle = append(idle, s)
		}
	})
	for id, u := range d.uses {
		if !there[id] && u.calls == 0 && u.streams == 0 {
			delete(d.uses, id)
		}
	}
	d.mu.Unlock()
	for _, s := range idle {
		_ = s.Close() // its client has left
	}
}
