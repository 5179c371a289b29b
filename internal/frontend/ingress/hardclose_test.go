package ingress

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
)

// halfConn is a connection that can end only its output, like TCP.
type halfConn struct {
	net.Conn
	halfClosed bool
	reset      bool
}

func (c *halfConn) CloseWrite() error { c.halfClosed = true; return nil }

func (c *halfConn) SetLinger(sec int) error { c.reset = sec == 0; return nil }

func hijacked(t *testing.T, gone bool) (*hardConn, *halfConn, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	ended := make(chan struct{})
	if gone {
		close(ended)
	}
	b := &backend{gone: ended}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	t.Cleanup(b.cancel)
	under := &halfConn{Conn: ours}
	return &hardConn{Conn: under, back: b}, under, theirs
}

// TestCloseWriteKeepsInputOpen checks that CloseWrite ends only the output, if the connection
// supports that.
func TestCloseWriteKeepsInputOpen(t *testing.T) {
	c, under, _ := hijacked(t, false)
	if err := c.CloseWrite(); err != nil || !under.halfClosed || under.reset {
		t.Errorf("CloseWrite: got %v %+v", err, under)
	}
	c, under, client := hijacked(t, false)
	c.Conn = under.Conn // this connection cannot end only its output
	if err := c.CloseWrite(); err != nil {
		t.Error(err)
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the client reads %v", err)
	}
}

// TestEndedSandboxResetsConnection checks that a client can tell cut output from complete output.
func TestEndedSandboxResetsConnection(t *testing.T) {
	for name, end := range map[string]func(*hardConn) error{"close": (*hardConn).Close, "end of output": (*hardConn).CloseWrite} {
		c, under, _ := hijacked(t, true)
		if _, err := c.Write([]byte("more")); !errors.Is(err, errGone) {
			t.Errorf("%s: more output: %v", name, err)
		}
		if err := end(c); err != nil || !under.reset || under.halfClosed {
			t.Errorf("%s: %v %+v", name, err, under)
		}
	}
}

// TestDialRejectsAddressWithoutPort checks addresses without a numeric port.
func TestDialRejectsAddressWithoutPort(t *testing.T) {
	b := newBackend(nil, "box", make(chan struct{})) // fails before it uses the Traffic
	defer b.close()
	for _, address := range []string{"box", "box:http", "box:"} {
		if conn, err := b.guest.DialContext(t.Context(), "tcp", address); err == nil {
			t.Errorf("%s: %v", address, conn)
		}
	}
}
