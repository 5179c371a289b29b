package connlimit

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// conn is a counted connection.
type conn struct {
	net.Conn
	guard  *Guard
	client netip.Prefix

	// Guarded by guard.mu.
	since  time.Time // when it was made, or idle
	served bool      // it has had an answer
	busy   bool      // a request is being answered, or another protocol is spoken

	writing sync.Mutex // around deadlines, so that none is lost
	own     time.Time  // the deadline that was set by others
}

// firstRequest is how long a new connection may take to send a request before
// another one may have its place. What was sent at once may still be on its way.
const firstRequest = time.Second

// evictable reports whether another connection may have this one's place.
func (c *conn) evictable(now time.Time) bool {
	return !c.busy && (c.served || now.Sub(c.since) >= firstRequest)
}

// piece is how much must get through within the time of a stall.
const piece = 64 << 10

// Write implements net.Conn. A client that asks and never reads would otherwise
// hold its connection, and what answers it, for ever.
func (c *conn) Write(p []byte) (n int, err error) {
	for {
		if err := c.begin(); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(p[n:min(n+piece, len(p))])
		n += m
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// begin bounds the next piece: by the time of a stall, or by the deadline that
// others have set if that is earlier.
func (c *conn) begin() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	end := time.Now().Add(c.guard.Limits.Stall)
	if !c.own.IsZero() && c.own.Before(end) {
		end = c.own
	}
	return c.Conn.SetWriteDeadline(end)
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.own = t
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// Close ends the connection and gives up its place.
func (c *conn) Close() error {
	c.guard.mu.Lock()
	c.guard.forget(c)
	c.guard.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite says that all was sent. Without it the server would cut answers
// whose request is still being sent.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// SetLinger lets Close reset the connection.
func (c *conn) SetLinger(sec int) error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		return tcp.SetLinger(sec)
	}
	return nil
}

// reset lets the next Close drop what was not sent, so that nothing of the
// connection stays with the kernel.
func reset(raw net.Conn) {
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // one that is closed already needs none
	}
}

// descriptor returns the number of a connection's descriptor.
func descriptor(raw net.Conn) (n int, ok bool) {
	sc, is := raw.(syscall.Conn)
	if !is {
		return 0, false
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = rc.Control(func(fd uintptr) { n = int(fd) })
	return n, err == nil
}
