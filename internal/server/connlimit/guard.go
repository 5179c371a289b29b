package connlimit

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// Options configure New. All but Limits.Files are required.
type Options struct {
	Limits Limits
	Log    *slog.Logger
	// Answer writes an error in the format of the API to which the path belongs.
	Answer func(w http.ResponseWriter, path string, refused *fault.Error)
}

// Guard counts the connections of one server over all its listeners. It is safe for concurrent use.
type Guard struct {
	Options
	null *os.File // used to find the lowest free descriptor

	mu      sync.Mutex
	clients map[netip.Prefix]*holder
	total   int
	// answering counts refused connections that wait for their answer.
	answering int
	refused   int64
	warned    time.Time
}

// holder has the open connections of one client.
type holder struct{ conns map[*conn]struct{} }

// New returns a Guard. Close ends it, but does not close connections.
func New(o Options) (*Guard, error) {
	limits, err := o.Limits.fitted()
	if err != nil {
		return nil, err
	}
	if limits.Total < o.Limits.Total {
		o.Log.Warn("fewer connections than max_connections: the limit of open files is too low",
			"connections", limits.Total, "max_connections", o.Limits.Total, "open_files", limits.Files, "reserved_descriptors", limits.Reserve)
	}
	o.Limits = limits
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	return &Guard{Options: o, null: null, clients: map[netip.Prefix]*holder{}}, nil
}

// Close releases the Guard's own descriptor.
func (g *Guard) Close() error { return g.null.Close() }

// Status has the number of open connections. Refused counts the connections that were refused or
// evicted since the start.
type Status struct {
	Open    int
	Refused int64
}

// Status returns the Guard's counters.
func (g *Guard) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Status{Open: g.total, Refused: g.refused}
}

// Listener returns a listener that accepts only the connections that the limits allow.
func (g *Guard) Listener(l net.Listener) net.Listener { return &listener{l, g} }

type listener struct {
	net.Listener
	guard *Guard
}

// Accept implements net.Listener. It returns only errors of the listener itself: a refused
// connection must not end the server.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c, refused := l.guard.admit(raw)
		if refused == nil {
			return c, nil
		}
		l.guard.refuse(raw, refused)
	}
}

// admit counts a connection, or returns the reason why it is refused.
func (g *Guard) admit(raw net.Conn) (*conn, *fault.Error) {
	c := &conn{Conn: raw, guard: g, client: client(raw.RemoteAddr()), since: time.Now()}
	g.mu.Lock()
	defer g.mu.Unlock()
	if n, ok := descriptor(raw); ok && n >= g.Limits.firstReserved() {
		// This connection uses a reserved descriptor and must be closed, but evicting another makes
		// room for the next one.
		g.evict(nil)
		return nil, errFiles
	}
	h := g.clients[c.client]
	if h != nil && len(h.conns) >= g.Limits.PerAddress && !g.evict(h) {
		return nil, errAddress
	}
	if g.total >= g.Limits.Total && !g.evict(nil) {
		return nil, errTotal
	}
	if h = g.clients[c.client]; h == nil {
		h = &holder{map[*conn]struct{}{}}
		g.clients[c.client] = h
	}
	h.conns[c] = struct{}{}
	g.total++
	return c, nil
}

// evict closes the longest idle connection of a client, and reports whether there was one. If
// client is nil, it chooses the client with the most connections among those with an idle one.
// Otherwise an attacker with many addresses could lock out others. The caller holds g.mu.
func (g *Guard) evict(client *holder) bool {
	var oldest *conn
	limit := 0
	for _, h := range g.clients {
		if client != nil && h != client || len(h.conns) < limit {
			continue
		}
		if c := h.idle(time.Now()); c != nil && (len(h.conns) > limit || c.since.Before(oldest.since)) {
			oldest, limit = c, len(h.conns)
		}
	}
	if oldest == nil {
		return false
	}
	g.forget(oldest)
	g.note(errors.New("an idle connection was closed to make room"))
	reset(oldest.Conn)
	// The connection was open until now. If closing it fails, the client has closed it already.
	_ = oldest.Conn.Close()
	return true
}

// idle returns the longest idle connection, or nil.
func (h *holder) idle(now time.Time) (oldest *conn) {
	for c := range h.conns {
		if c.evictable(now) && (oldest == nil || c.since.Before(oldest.since)) {
			oldest = c
		}
	}
	return oldest
}

// forget stops counting a connection. The caller holds g.mu.
func (g *Guard) forget(c *conn) {
	h := g.clients[c.client]
	if h == nil {
		return
	}
	if _, counted := h.conns[c]; !counted {
		return
	}
	delete(h.conns, c)
	g.total--
	if len(h.conns) == 0 {
		delete(g.clients, c.client)
	}
}

// warnEvery is the interval of log lines during a flood of connections.
const warnEvery = time.Minute

// note counts a refusal and logs it from time to time. The caller holds g.mu.
func (g *Guard) note(why error) {
	g.refused++
	if now := time.Now(); now.Sub(g.warned) >= warnEvery {
		g.warned = now
		g.Log.Warn("connections refused", "why", why, "open", g.total, "clients", len(g.clients), "refused", g.refused)
	}
}

type connKey struct{}

// Context stores the connection in its context, for http.Server.ConnContext.
func (g *Guard) Context(ctx context.Context, raw net.Conn) context.Context {
	if c, ok := raw.(*conn); ok {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// State records when a connection becomes idle, for http.Server.ConnState.
func (g *Guard) State(raw net.Conn, state http.ConnState) {
	if c, ok := raw.(*conn); ok && state == http.StateIdle {
		g.mu.Lock()
		defer g.mu.Unlock()
		c.busy, c.served, c.since = false, true, time.Now()
	}
}

// Handler serves requests of guarded connections only while the process has free descriptors,
// because each request may need another one for a connection into a sandbox. It serves requests of
// all other connections, such as those of the local socket.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(connKey{}).(*conn)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		g.mu.Lock()
		c.busy = true
		free := g.hasFreeDescriptor()
		if !free {
			g.note(errFiles)
		}
		g.mu.Unlock()
		if !free {
			w.Header().Set("Connection", "close")
			g.Answer(w, r.URL.Path, errFiles)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hasFreeDescriptor reports whether the lowest free descriptor is not a reserved one.
func (g *Guard) hasFreeDescriptor() bool {
	fd, err := unix.FcntlInt(g.null.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return false // no descriptor is free
	}
	_ = unix.Close(fd) // a descriptor of /dev/null, so nothing can be lost
	return fd < g.Limits.firstReserved()
}
