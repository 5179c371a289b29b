package connlimit

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// highLimits are limits that no test reaches, unless it lowers one.
var highLimits = Limits{Total: 100, PerAddress: 100, Reserve: 100, Stall: time.Hour, Files: 10_000}

func guard(t *testing.T, l Limits) *Guard {
	t.Helper()
	g, err := New(Options{Limits: l, Log: slog.New(slog.DiscardHandler), Answer: func(w http.ResponseWriter, path string, f *fault.Error) {
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(map[fault.Kind]int{fault.Exhausted: 429, fault.Unavailable: 503}[f.Kind])
		_ = json.NewEncoder(w).Encode(path + " " + f.Code)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// addressConn is a connection from a given address.
type addressConn struct {
	net.Conn
	addr string
}

func (f addressConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(f.addr), 1))
}

func pipe(t *testing.T, addr string) addressConn {
	clientEnd, serverEnd := net.Pipe()
	t.Cleanup(func() { clientEnd.Close(); serverEnd.Close() })
	return addressConn{clientEnd, addr}
}

// S3, attack 4: an attacker has a whole IPv6 network, and uses a new address for each connection.
func TestS3AddressesOfOneNetworkShareLimit(t *testing.T) {
	l := highLimits
	l.PerAddress = 2
	g := guard(t, l)
	for i, tc := range []struct {
		addr string
		want *fault.Error
	}{
		{"2001:db8:0:1::1", nil},
		{"2001:db8:0:1::2", nil},
		{"2001:db8:0:1:ffff::3", errAddress},
		{"2001:db8:0:2::1", nil}, // another network
		{"192.0.2.1", nil},
		{"::ffff:192.0.2.1", nil},
		{"::ffff:192.0.2.1", errAddress},
		{"192.0.2.2", nil}, // another address
	} {
		if _, refused := g.admit(pipe(t, tc.addr)); refused != tc.want {
			t.Errorf("connection %d from %s: got %v, want %v", i, tc.addr, refused, tc.want)
		}
	}
}

// Eviction closes the longest idle connection of the client with the most connections. It never
// closes a connection that is used, or that is so new that its request may be on its way.
func TestEvictionClosesLongestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := highLimits
		l.Total = 4
		g := guard(t, l)
		add := func(addr string) *conn {
			t.Helper()
			c, refused := g.admit(pipe(t, addr))
			if refused != nil {
				t.Fatal(refused)
			}
			time.Sleep(time.Millisecond)
			return c
		}
		isOpen := func(c *conn) bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			h := g.clients[c.client]
			if h == nil {
				return false
			}
			_, ok := h.conns[c]
			return ok
		}
		single := add("192.0.2.1")
		first, busy, last := add("192.0.2.2"), add("192.0.2.2"), add("192.0.2.2")
		busy.busy = true
		if _, refused := g.admit(pipe(t, "192.0.2.3")); refused != errTotal {
			t.Errorf("admit while all connections are new: got %v, want %v", refused, errTotal)
		}
		time.Sleep(firstRequest)
		add("192.0.2.3")
		if isOpen(first) || !isOpen(single) || !isOpen(busy) || !isOpen(last) {
			t.Errorf("open: single %v, first %v, busy %v, last %v; want all but first", isOpen(single), isOpen(first), isOpen(busy), isOpen(last))
		}
		for _, c := range []*conn{single, last} {
			c.busy = true
		}
		g.State(busy, http.StateIdle)
		add("192.0.2.4")
		if isOpen(busy) || g.Status().Open != l.Total {
			t.Errorf("after the answer: connection open: %v, status %+v; want it evicted", isOpen(busy), g.Status())
		}
		if err := last.Close(); err != nil || isOpen(last) || g.Status().Open != l.Total-1 {
			t.Errorf("Close: got %v and %+v, want %d open connections", err, g.Status(), l.Total-1)
		}
	})
}

// A client that reads nothing is disconnected. A client that reads slowly is not.
func TestStallDisconnectsClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := highLimits
		l.Stall = time.Minute
		g := guard(t, l)
		for name, reads := range map[string]int{"nothing": 0, "slowly": 10} {
			serverEnd, clientEnd := net.Pipe()
			c, refused := g.admit(addressConn{serverEnd, "192.0.2.1"})
			if refused != nil {
				t.Fatal(refused)
			}
			go func() {
				for range reads {
					time.Sleep(50 * time.Second)
					if _, err := io.CopyN(io.Discard, clientEnd, piece); err != nil {
						t.Error(err)
					}
				}
			}()
			n, err := c.Write(make([]byte, 10*piece))
			if n != reads*piece || (err != nil) != (reads == 0) {
				t.Errorf("client that reads %s: Write returned %d (%v), want %d bytes", name, n, err, reads*piece)
			}
			// The deadline of a handler applies if it is earlier than the stall limit.
			if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			started := time.Now()
			if _, err := c.Write([]byte("x")); err == nil || time.Since(started) != time.Second {
				t.Errorf("client that reads %s: Write returned %v after %v, want an error after 1s", name, err, time.Since(started))
			}
			clientEnd.Close()
			c.Close()
		}
	})
}

// A refused connection is answered in the format of the API that it calls. A connection for which
// no descriptor is free is closed.
func TestRefusedConnectionsGetAnswer(t *testing.T) {
	l := highLimits
	l.Total, l.PerAddress = 2, 1
	g := guard(t, l)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	arrived, leave := make(chan struct{}), make(chan struct{})
	srv := &http.Server{ConnContext: g.Context, ConnState: g.State, Handler: g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-leave
	}))}
	ended := make(chan error)
	go func() { ended <- srv.Serve(g.Listener(tcp)) }()
	dial := func(last byte) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, last)}}
		return d.DialContext(t.Context(), "tcp", tcp.Addr().String())
	}
	sendRequest := func(last byte) *bufio.Reader {
		c, err := dial(last)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(hosttest.Deadline()); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "GET /v1/x HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return bufio.NewReader(c)
	}
	wantRefusal := func(last byte, status int, code string) {
		t.Helper()
		resp, err := http.ReadResponse(sendRequest(last), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var body string
		err = json.NewDecoder(resp.Body).Decode(&body)
		if err != nil || resp.StatusCode != status || body != "/v1/x "+code || resp.Header.Get("Retry-After") == "" || !resp.Close {
			t.Errorf("got %+v with %q (%v), want status %d and %s", resp, body, err, status, code)
		}
	}
	sendRequest(1)
	<-arrived
	wantRefusal(1, http.StatusTooManyRequests, "connections_address")
	sendRequest(2)
	<-arrived
	wantRefusal(3, http.StatusServiceUnavailable, "connections_full")
	// Lower the limit so that all descriptors from now on are reserved ones.
	g.mu.Lock()
	g.Limits.Files = l.Reserve
	g.mu.Unlock()
	if c, err := dial(1); err == nil { // it may be reset before the dial returns
		if err := c.SetDeadline(hosttest.Deadline()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection with a reserved descriptor: got %v, want it closed", err)
		}
	}
	if g.hasFreeDescriptor() {
		t.Error("hasFreeDescriptor returned true, want false")
	}
	close(leave)
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	hosttest.EventuallyAtMost(t, "connections", 0, func() int { return g.Status().Open })
}

// Zero does not mean unlimited. A total above the available descriptors is lowered, or rejected.
func TestLimitsAreLoweredToDescriptors(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Limits)
		total  int
		code   string
	}{
		"enough":          {func(*Limits) {}, 100, ""},
		"few descriptors": {func(l *Limits) { l.Files = 200 }, 50, ""},
		"no descriptors":  {func(l *Limits) { l.Files = 100 }, 0, "descriptors_too_few"},
		"no total":        {func(l *Limits) { l.Total = 0 }, 0, "connections_limits"},
		"no address":      {func(l *Limits) { l.PerAddress = 0 }, 0, "connections_limits"},
		"no reserve":      {func(l *Limits) { l.Reserve = 0 }, 0, "connections_limits"},
		"no stall":        {func(l *Limits) { l.Stall = 0 }, 0, "connections_limits"},
	} {
		l := highLimits
		tc.change(&l)
		fitted, err := l.fitted()
		if tc.code == "" && (err != nil || fitted.Total != tc.total) || tc.code != "" && fault.CodeOf(err) != tc.code {
			t.Errorf("%s: got %+v, %v; want a total of %d or the code %q", name, fitted, err, tc.total, tc.code)
		}
	}
}
