package attachment

import (
	"net"
	"os"
	"sync"
	"syscall"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
)

// conn is an accepted connection.
type conn struct {
	*gonet.TCPConn
	endpoint tcpip.Endpoint
	link     *Link
	slot     *slot
	once     sync.Once
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	return n, c.plain(err)
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	return n, c.plain(err)
}

// plain converts the stack's errors to those of package net, because callers test whether a
// deadline has passed or the peer has reset the connection.
func (c *conn) plain(err error) error {
	op, ok := err.(*net.OpError) //nolint:errorlint // exactly what the stack's connection returns
	if !ok || op.Err == nil {
		return err
	}
	if t, ok := op.Err.(net.Error); ok && t.Timeout() { //nolint:errorlint // as above
		op.Err = os.ErrDeadlineExceeded
		return op
	}
	switch op.Err.Error() {
	case (&tcpip.ErrConnectionReset{}).String():
		op.Err = syscall.ECONNRESET
	case (&tcpip.ErrClosedForSend{}).String():
		op.Err = syscall.EPIPE
	case (&tcpip.ErrAborted{}).String(), (&tcpip.ErrConnectionAborted{}).String(), (&tcpip.ErrInvalidEndpointState{}).String():
		op.Err = net.ErrClosed
	}
	return op
}

// Close sends buffered data and then the end of the stream.
func (c *conn) Close() error {
	c.once.Do(func() {
		_ = c.TCPConn.Close()
		c.link.flows.linger(c.slot)
	})
	return nil
}

// Reset ends the connection with an error, so that the program inside does not treat incomplete
// data as complete.
func (c *conn) Reset() error {
	c.once.Do(func() {
		c.endpoint.Abort()
		c.link.flows.ended(c.slot)
	})
	return nil
}
