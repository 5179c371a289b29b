package proxy

import (
	"net"
	"sync/atomic"
	"time"
)

const (
	// stallTimeout is how long a write to the sandbox may block. A program that does not read
	// occupies an upstream connection and buffers.
	stallTimeout = time.Minute
	// stallStep is the minimum time between two settings of the write deadline, so that not every
	// write sets a timer.
	stallStep = 10 * time.Second
)

// client is the sandbox's end of a flow. Bytes that were read ahead can be read from it again.
type client struct {
	net.Conn
	flow *flow
	head []byte
	// deadlineSet is the time at which the write deadline was last set, in Unix nanoseconds.
	deadlineSet atomic.Int64
}

func (c *client) Read(p []byte) (int, error) {
	if len(c.head) > 0 {
		n := copy(p, c.head)
		if c.head = c.head[n:]; len(c.head) == 0 {
			c.head = nil
		}
		return n, nil
	}
	return c.Conn.Read(p)
}

func (c *client) Write(p []byte) (int, error) {
	now := time.Now()
	if last := c.deadlineSet.Load(); now.UnixNano()-last > int64(stallStep) && c.deadlineSet.CompareAndSwap(last, now.UnixNano()) {
		if err := c.Conn.SetWriteDeadline(now.Add(stallTimeout + stallStep)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(p)
}

// peek reads until head has at least n bytes and returns all of it.
func (c *client) peek(n int) ([]byte, error) {
	for len(c.head) < n {
		if cap(c.head)-len(c.head) < 1<<10 {
			grown := make([]byte, len(c.head), 2*cap(c.head)+2<<10)
			copy(grown, c.head)
			c.head = grown
		}
		k, err := c.Conn.Read(c.head[len(c.head):cap(c.head)])
		c.head = c.head[:len(c.head)+k]
		if k > 0 {
			c.flow.receivedFirst.Store(true)
		}
		if err != nil && len(c.head) < n {
			return c.head, err
		}
	}
	return c.head, nil
}

// CloseWrite closes one direction, if the underlying connection supports that.
func (c *client) CloseWrite() error { return closeWrite(c.Conn) }

// closeWrite signals that no more data follows, while the peer may continue to send. If the
// connection does not support this, it is closed.
func closeWrite(c net.Conn) error {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return c.Close()
}

// reset ends a connection with an error, so that its data does not seem to be complete.
func reset(c net.Conn) {
	if r, ok := c.(interface{ Reset() error }); ok {
		_ = r.Reset()
		return
	}
	if l, ok := c.(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = c.Close()
}
