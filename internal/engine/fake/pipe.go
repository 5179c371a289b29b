package fake

import (
	"context"
	"net"
	"sync"
)

// listener accepts in-memory pipes, so that tests need no ports, and so that the tests' fake clocks
// see all waits.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	open map[*conn]struct{}
}

func newListener() *listener {
	return &listener{
		conns: make(chan net.Conn), closed: make(chan struct{}), open: make(map[*conn]struct{}),
	}
}

// conn is the guest's end of a stream. The listener closes it when it is closed itself, even if a
// handler has taken over the stream.
type conn struct {
	net.Conn
	l *listener
}

func (c *conn) Close() error {
	c.l.mu.Lock()
	delete(c.l.open, c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

func (l *listener) dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	c := &conn{Conn: far, l: l}
	l.mu.Lock()
	l.open[c] = struct{}{}
	l.mu.Unlock()
	select {
	case l.conns <- c:
		return near, nil
	case <-l.closed:
		return nil, drop(near, c, net.ErrClosed)
	case <-ctx.Done():
		return nil, drop(near, c, context.Cause(ctx))
	}
}

// drop closes both ends of an unused pipe. Closing a pipe does not fail.
func drop(near, far net.Conn, why error) error {
	near.Close()
	far.Close()
	return why
}

// Accept waits for a stream.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close closes all streams.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	l.mu.Lock()
	open := make([]*conn, 0, len(l.open))
	for c := range l.open {
		open = append(open, c)
	}
	l.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
	return nil
}

// Addr returns an address that names the fake.
func (l *listener) Addr() net.Addr { return addr{} }

type addr struct{}

func (addr) Network() string { return "pipe" }
func (addr) String() string  { return "fake" }
