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

// keyDesk is the desk of one key, with the HTTP endpoints that serve it.
type keyDesk struct {
	*Desk
	links *links
	said  *replay

	mu        sync.Mutex
	endpoints map[string]*endpoint // by view
	uses      map[string]*use      // by session
	arriving  int                  // sessions that are about to begin
}

// endpoint serves one view of one key. Sessions are its own: an ID that was
// overheard opens nothing with another key, or at another address.
type endpoint struct {
	*mcp.StreamableHTTPHandler
	srv *mcp.Server
}

// endpoint returns what serves a view.
func (d *keyDesk) endpoint(v View) (*endpoint, error) {
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
	srv.AddReceivingMiddleware(d.counted)
	o := &mcp.StreamableHTTPOptions{
		// The library's own time limit for sessions counts neither calls whose
		// connection broke nor clients that listen. Ours does: endIdle.
		Stateless: v.Stateless, MaxRequestBodyBytes: maxBody,
		PropagateRequestCancellation: true,
		// Ours holds for every address, and knows names of our own.
		DisableLocalhostProtection: true,
	}
	if !v.Stateless {
		// A client whose connection broke gets what it missed. The library looks
		// only for the session's own streams, and sessions are this endpoint's.
		o.EventStore = d.said
	}
	e := &endpoint{srv: srv, StreamableHTTPHandler: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, o)}
	d.endpoints[v.key()] = e
	return e, nil
}

// dropView makes room by forgetting an endpoint without sessions. d.mu must be
// held.
func (d *keyDesk) dropView() bool {
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

// idle is how long nothing was asked, zero while there are sessions.
func (d *keyDesk) idle() time.Duration {
	d.mu.Lock()
	n := d.sessions()
	d.mu.Unlock()
	if n > 0 {
		return 0
	}
	return d.Desk.idle()
}

// close ends the sessions and closes the connections to the API. Programs in
// sandboxes go on running.
func (d *keyDesk) close() {
	d.mu.Lock()
	var open []*mcp.ServerSession
	d.open(func(s *mcp.ServerSession, _ *use) { open = append(open, s) })
	d.mu.Unlock()
	// Closing the connections ends the calls that sessions would wait for.
	d.links.close()
	for _, s := range open {
		_ = s.Close() // its client may have disconnected
	}
	// It does not end sandboxes that have a label, so it cannot fail.
	_ = d.Desk.Close(context.Background())
	d.said.close()
}

// links are the connections of one desk to the API.
type links struct {
	dial func(ctx context.Context) (net.Conn, error)

	mu     sync.Mutex
	conns  map[*link]struct{}
	closed bool
}

func newLinks(dial func(ctx context.Context) (net.Conn, error)) *links {
	return &links{dial: dial, conns: map[*link]struct{}{}}
}

func (l *links) transport() *http.Transport {
	return &http.Transport{
		DialContext: l.connect, MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second, DisableCompression: true,
	}
}

func (l *links) connect(ctx context.Context, _, _ string) (net.Conn, error) {
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
	k := &link{Conn: c, of: l}
	l.conns[k] = struct{}{}
	return k, nil
}

func (l *links) close() {
	l.mu.Lock()
	l.closed = true
	conns := l.conns
	l.conns = map[*link]struct{}{}
	l.mu.Unlock()
	for c := range conns {
		_ = c.Conn.Close() // it is cut in any case
	}
}

// link is one connection, which its links can cut.
type link struct {
	net.Conn
	of *links
}

func (k *link) Close() error {
	k.of.mu.Lock()
	delete(k.of.conns, k)
	k.of.mu.Unlock()
	return k.Conn.Close()
}
