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

	// The fields below are guarded by guard.mu.
	since  time.Time // when it was opened, or became idle
	served bool      // a request was answered on it
	busy   bool      // a request is being answered, or it was upgraded to another protocol

	writing        sync.Mutex // held while deadlines are set
	callerDeadline time.Time  // the deadline that a caller set
}

// firstRequest is the time for a new connection to send a request before it may be evicted. A
// request that was sent at once may still be on its way.
const firstRequest = time.Second

// evictable reports whether the connection may be closed to make room for another.
func (c *conn) evictable(now time.Time) bool {
	return !c.busy && (c.served || now.Sub(c.since) >= firstRequest)
}

// piece is the amount of data that the client must read within the stall limit.
const piece = 64 << 10

// Write implements net.Conn. It limits the time for each piece. Otherwise an attacker that never
// reads could hold the connection and the handler.
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

// begin sets the deadline for the next piece. It is the stall limit, or the caller's deadline if
// that is earlier.
func (c *conn) begin() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	end := time.Now().Add(c.guard.Limits.Stall)
	if !c.callerDeadline.IsZero() && c.callerDeadline.Before(end) {
		end = c.callerDeadline
	}
	return c.Conn.SetWriteDeadline(end)
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.callerDeadline = t
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// Close closes the connection and stops counting it.
func (c *conn) Close() error {
	c.guard.mu.Lock()
	c.guard.forget(c)
	c.guard.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite ends the data that the server sends. Without this method the server would cut off an
// answer while the client is still sending the request.
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

// reset makes the next Close drop unsent data, so that the kernel frees the connection at once.
func reset(raw net.Conn) {
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // It fails only if the connection is closed.
	}
}

// descriptor returns the connection's file descriptor.
func descriptor(raw net.Conn) (n int, ok bool) {
	sc, ok := raw.(syscall.Conn)
	if !ok {
		return 0, false
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = rc.Control(func(fd uintptr) { n = int(fd) })
	return n, err == nil
}
