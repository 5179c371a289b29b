package mcpserver

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog/internal/fault"
)

// keyTenant is the Tenant of one key, with its HTTP endpoints.
type keyTenant struct {
	*Tenant
	conns  *apiConns
	replay *replay

	mu        sync.Mutex
	endpoints map[string]*endpoint // by view
	uses      map[string]*use      // by session
	arriving  int                  // sessions that are about to begin
}

// endpoint serves one view of one key. Its sessions are separate from those of other endpoints: a
// stolen session ID is useless with another key or at another address.
type endpoint struct {
	*mcp.StreamableHTTPHandler
	srv *mcp.Server
}

// endpoint returns the endpoint of a view.
func (d *keyTenant) endpoint(v View) (*endpoint, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.endpoints[v.key()]; e != nil {
		return e, nil
	}
	if len(d.endpoints) >= maxViews && !d.dropView() {
		return nil, fault.New(fault.Exhausted, "too_many_endpoints", "this key uses too many endpoints at once")
	}
	srv, err := d.Server(v)
	if err != nil {
		return nil, err
	}
	srv.AddReceivingMiddleware(d.countCalls)
	o := &mcp.StreamableHTTPOptions{
		// The library's time limit for sessions ignores calls whose connection broke and clients
		// that listen. endIdle takes them into account.
		Stateless: v.Stateless, MaxRequestBodyBytes: maxBody,
		PropagateRequestCancellation: true,
		// The check in guard.go replaces the library's: it covers every address, and knows the
		// configured names.
		DisableLocalhostProtection: true,
	}
	if !v.Stateless {
		// A client whose connection broke can fetch missed messages. The library checks only the
		// session's own streams, and sessions belong to this endpoint.
		o.EventStore = d.replay
	}
	e := &endpoint{srv: srv, StreamableHTTPHandler: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, o)}
	d.endpoints[v.key()] = e
	return e, nil
}

// dropView makes room by removing an endpoint without sessions. The caller holds d.mu.
func (d *keyTenant) dropView() bool {
next:
	for key, e := range d.endpoints {
		for range e.srv.Sessions() {
			continue next
		}
		delete(d.endpoints, key)
		return true
	}
	return false
}

// idle returns the time since the last request, or zero while there are sessions.
func (d *keyTenant) idle() time.Duration {
	d.mu.Lock()
	n := d.sessions()
	d.mu.Unlock()
	if n > 0 {
		return 0
	}
	return d.Tenant.idle()
}

// close ends the sessions and closes the connections to the API. Programs in sandboxes keep
// running.
func (d *keyTenant) close() {
	d.mu.Lock()
	var open []*mcp.ServerSession
	d.eachOpen(func(s *mcp.ServerSession, _ *use) { open = append(open, s) })
	d.mu.Unlock()
	// The connections are closed first, which ends calls for which the sessions would otherwise
	// wait.
	d.conns.close()
	for _, s := range open {
		_ = s.Close() // its client may have disconnected
	}
	// Close does not end sandboxes that have a label, so it cannot fail.
	_ = d.Tenant.Close(context.Background())
	d.replay.close()
}

// apiConns are the connections of one Tenant to the API.
type apiConns struct {
	dial func(ctx context.Context) (net.Conn, error)

	mu     sync.Mutex
	conns  map[*apiConn]struct{}
	closed bool
}

func newAPIConns(dial func(ctx context.Context) (net.Conn, error)) *apiConns {
	return &apiConns{dial: dial, conns: map[*apiConn]struct{}{}}
}

func (l *apiConns) transport() *http.Transport {
	return &http.Transport{
		DialContext: l.connect, MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second, DisableCompression: true,
	}
}

func (l *apiConns) connect(ctx context.Context, _, _ string) (net.Conn, error) {
	c, err := l.dial(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = c.Close() // nothing was sent on it
		return nil, net.ErrClosed
	}
	k := &apiConn{Conn: c, of: l}
	l.conns[k] = struct{}{}
	return k, nil
}

func (l *apiConns) close() {
	l.mu.Lock()
	l.closed = true
	conns := l.conns
	l.conns = map[*apiConn]struct{}{}
	l.mu.Unlock()
	for c := range conns {
		_ = c.Conn.Close() // it is closed in any case
	}
}

// apiConn is one connection, which apiConns can close.
type apiConn struct {
	net.Conn
	of *apiConns
}

func (k *apiConn) Close() error {
	k.of.mu.Lock()
	delete(k.of.conns, k)
	k.of.mu.Unlock()
	return k.Conn.Close()
}
