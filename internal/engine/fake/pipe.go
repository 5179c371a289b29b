package fake

import (
	"context"
	"net"
	"sync"
)

// listener accepts in-memory pipes. They need no ports, and waiting for them is visible to the
// clock of a synctest bubble.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	open map[*conn]struct{}
}

// newListener returns an open listener.
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

// Close implements net.Conn.
func (c *conn) Close() error {
	c.l.mu.Lock()
	delete(c.l.open, c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// dial opens a stream and returns the client's end.
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
		return nil, closeBoth(near, c, net.ErrClosed)
	case <-ctx.Done():
		return nil, closeBoth(near, c, context.Cause(ctx))
	}
}

// closeBoth closes both ends of an unused pipe, which does not fail, and returns err.
func closeBoth(near, far net.Conn, err error) error {
	near.Close()
	far.Close()
	return err
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

// addr is the address of every listener.
type addr struct{}

func (addr) Network() string { return "pipe" }
func (addr) String() string  { return "fake" }
