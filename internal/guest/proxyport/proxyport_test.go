package proxyport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// start serves ports whose streams go to a Unix socket, and returns its listener.
func start(t *testing.T) (*Server, *net.UnixListener) {
	t.Helper()
	path := filepath.Join(hosttest.ShortDir(t), "gateway")
	gateway, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gateway.Close() })
	free := netip.MustParseAddrPort("127.0.0.1:0")
	open := func(ctx context.Context) (Stream, error) {
		c, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err != nil {
			return nil, err
		}
		return c.(*net.UnixConn), nil
	}
	// Another program may have the TCP port with the number of the UDP port that was free.
	s, err := listen(open, free, free)
	for range 100 {
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
		s, err = listen(open, free, free)
	}
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve ended with %v", err)
		}
	})
	return s, gateway
}

func dial(t *testing.T, network string, at net.Addr) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), network, at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(hosttest.Deadline()); err != nil {
		t.Fatal(err)
	}
	return c
}

// P68: what programs send reaches the gateway. Each direction of a connection ends by itself, so that a program may end its request before it
// reads the answer.
func TestConnectionsReachTheGateway(t *testing.T) {
	s, gateway := start(t)
	go func() {
		c, err := gateway.AcceptUnix()
		if err != nil {
			return
		}
		defer c.Close()
		request, _ := io.ReadAll(c)
		_, _ = c.Write(bytes.ToLower(request))
	}()
	c := dial(t, "tcp", s.proxy.Addr())
	if _, err := c.Write([]byte("CONNECT a:1")); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "connect a:1" {
		t.Errorf("got %q, %v", got, err)
	}
}

// A stream that the gateway ends is the end of the program's connection.
func TestEndOfStreamEndsConnection(t *testing.T) {
	s, gateway := start(t)
	c := dial(t, "tcp", s.proxy.Addr())
	stream, err := gateway.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	stream.Close()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v, want the end", n, err)
	}
	gateway.Close()
	c = dial(t, "tcp", s.proxy.Addr())
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("without a gateway: read %d bytes, %v, want the end", n, err)
	}
}

// A reply that is larger than the program accepts makes the program ask over TCP.
func TestNamesAreAnsweredByTheGateway(t *testing.T) {
	s, gateway := start(t)
	reply := bytes.Repeat([]byte{7}, 700)
	go func() {
		for {
			c, err := gateway.AcceptUnix()
			if err != nil {
				return
			}
			size := make([]byte, 2)
			if _, err := io.ReadFull(c, size); err == nil {
				query := make([]byte, binary.BigEndian.Uint16(size))
				_, _ = io.ReadFull(c, query)
				_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
			}
			c.Close()
		}
	}()
	plain, large := message(t, 0), message(t, 1232)
	for _, test := range []struct {
		query []byte
		want  int
	}{{plain, headerSize}, {large, len(reply)}} {
		c := dial(t, "udp", s.queries.LocalAddr())
		if _, err := c.Write(test.query); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 2000)
		n, err := c.Read(got)
		if err != nil || n != test.want || (n == headerSize) != (got[2]&truncatedBit != 0 && n < len(reply)) {
			t.Errorf("a reply of %d bytes, %v, want %d", n, err, test.want)
		}
	}
	c := dial(t, "tcp", s.names.Addr())
	if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(plain))), plain...)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 2+len(reply))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got[2:], reply) {
		t.Errorf("over TCP: % x, %v", got, err)
	}
}

// message returns a query that accepts datagrams of a size; 0 names none.
func message(t testing.TB, size int) []byte {
	t.Helper()
	m := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("a.test."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	if size > 0 {
		m.Additionals = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("."), Class: dnsmessage.Class(size)}, Body: &dnsmessage.OPTResource{},
		}}
	}
	data, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// FuzzQuery parses queries that a program in the sandbox sends, and replies that it could forge.
func FuzzQuery(f *testing.F) {
	f.Add(message(f, 0))
	f.Add(message(f, 70))
	f.Add(message(f, 1<<15))
	f.Add([]byte{0, 1, 2})
	f.Fuzz(func(t *testing.T, query []byte) {
		size := acceptedSize(query)
		if size < plainSize || size > maxDatagram {
			t.Fatalf("the accepted size is %d", size)
		}
		if len(query) < headerSize {
			return
		}
		if got := fit(query, size); len(got) > size || len(got) < headerSize {
			t.Fatalf("a reply of %d bytes for a limit of %d", len(got), size)
		}
	})
}
