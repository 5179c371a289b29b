package mcpserver

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog/internal/fault"
)

// Limits of sessions. Most clients leave without ending their session.
const (
	maxSessions = 32 // of a key
	// sessionIdle is how long a session lives without a call and without a listening client. It is
	// longer than messages are kept, so that a client whose connection broke can fetch all of them.
	sessionIdle = 15 * time.Minute
)

// use describes how a session is used.
type use struct {
	last    time.Time // the end of the last request or call
	calls   int       // POST and DELETE requests, and calls, in progress
	streams int       // GET requests, on which a client listens
	ended   bool      // it is about to be ended and takes no more requests
}

// endsBefore reports which of two sessions is ended first to make room: one without a connected
// client, then the longest idle.
func (u *use) endsBefore(other *use) bool {
	if (u.streams == 0) != (other.streams == 0) {
		return u.streams == 0
	}
	return u.last.Before(other.last)
}

// eachOpen calls do for each session of each endpoint that has had a call and is not about to be
// ended. The caller holds d.mu.
func (d *keyTenant) eachOpen(do func(*mcp.ServerSession, *use)) {
	for _, e := range d.endpoints {
		for s := range e.srv.Sessions() {
			if s.ID() == "" {
				continue // it ends with its request
			}
			// A session without a call is still being connected, and counts as an arrival. The
			// library panics when such a session is closed. If it gets no call, the library closes
			// it itself.
			if u := d.uses[s.ID()]; u != nil && !u.ended {
				do(s, u)
			}
		}
	}
}

// sessions returns the number of open sessions. The caller holds d.mu.
func (d *keyTenant) sessions() (n int) {
	d.eachOpen(func(*mcp.ServerSession, *use) { n++ })
	return n
}

// arrival is a session that is about to begin. It counts as a session, so that many that begin at
// once are bounded too.
type arrival struct{ done func() }

type arrivalKey struct{}

// admit records that a request is in progress, until leave is called. For a request that begins a
// session, it makes room by ending the longest idle one. It never ends a session with a call in
// progress.
func (d *keyTenant) admit(v View, r *http.Request) (_ *http.Request, leave func(), err error) {
	id := r.Header.Get("Mcp-Session-Id")
	switch {
	case v.Stateless:
		return r, func() {}, nil
	case id != "":
		leave, err = d.enterSession(id, r.Method == http.MethodGet)
		return r, leave, err
	case r.Method != http.MethodPost:
		return r, func() {}, nil
	}
	d.mu.Lock()
	var out *mcp.ServerSession
	if n := d.sessions() + d.arriving; n >= maxSessions {
		if out = d.longestIdle(); out == nil {
			d.mu.Unlock()
			return r, nil, fault.Newf(fault.Exhausted, "too_many_sessions", "this key has %d sessions, and all are in use", maxSessions).
				WithHint("end some with DELETE, or wait until a call of one ends")
		}
		d.uses[out.ID()].ended = true
	}
	d.arriving++
	d.mu.Unlock()
	if out != nil {
		_ = out.Close() // its client has left, or begins again
	}
	once := sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.arriving--
	})
	return r.WithContext(context.WithValue(r.Context(), arrivalKey{}, arrival{once})), once, nil
}

// longestIdle returns the session to end, or nil if all have a call in progress. The caller holds
// d.mu.
func (d *keyTenant) longestIdle() (out *mcp.ServerSession) {
	var first *use
	d.eachOpen(func(s *mcp.ServerSession, u *use) {
		if u.calls == 0 && (first == nil || u.endsBefore(first)) {
			out, first = s, u
		}
	})
	return out
}

// enterSession records that a request of a session is in progress. It stores nothing about an
// unknown session, because the client may send any ID.
func (d *keyTenant) enterSession(id string, listens bool) (leave func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.uses[id]
	if u == nil {
		return func() {}, nil
	}
	if u.ended {
		return nil, fault.New(fault.NotFound, "session_not_found", "this session has ended").WithHint("begin another one with initialize")
	}
	counter := &u.calls
	if listens {
		counter = &u.streams
	}
	*counter++
	u.last = time.Now()
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		*counter--
		u.last = time.Now()
	}, nil
}

// countCalls records that a call is in progress. A call may outlive its request, because it
// continues when its connection breaks.
func (d *keyTenant) countCalls(next mcp.MethodHandler) mcp.MethodHandler {
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

// endIdle ends sessions that have been idle for too long, and drops the state of ended ones.
func (d *keyTenant) endIdle() {
	var idle []*mcp.ServerSession
	open := map[string]bool{}
	d.mu.Lock()
	d.eachOpen(func(s *mcp.ServerSession, u *use) {
		open[s.ID()] = true
		if u.calls == 0 && u.streams == 0 && time.Since(u.last) > sessionIdle {
			u.ended = true
			idle = append(idle, s)
		}
	})
	for id, u := range d.uses {
		if !open[id] && u.calls == 0 && u.streams == 0 {
			delete(d.uses, id)
		}
	}
	d.mu.Unlock()
	for _, s := range idle {
		_ = s.Close() // its client has left
	}
}
