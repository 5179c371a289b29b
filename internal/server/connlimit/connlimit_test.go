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

var wide = Limits{Total: 100, PerAddress: 100, Reserve: 100, Stall: time.Hour, Files: 10_000}

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

// from is a connection from a given address.
type from struct {
	net.Conn
	addr string
}

func (f from) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(f.addr), 1))
}

func pipe(t *testing.T, addr string) from {
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return from{ours, addr}
}

// S3, attack 4: a client has a whole IPv6 network, and a new address for each connection.
func TestS3AddressesOfOneNetwork(t *testing.T) {
	l := wide
	l.PerAddress = 2
	g := guard(t, l)
	for i, tc := range []struct {
		addr string
		want *fault.Error
	}{
		{"2001:db8:0:1::1", nil},
		{"2001:db8:0:1::2", nil},
		{"2001:db8:0:1:ffff::3", errAddress},
		{"2001:db8:0:2::1", nil}, // control
		{"192.0.2.1", nil},
		{"::ffff:192.0.2.1", nil},
		{"::ffff:192.0.2.1", errAddress},
		{"192.0.2.2", nil}, // control
	} {
		if _, refused := g.admit(pipe(t, tc.addr)); refused != tc.want {
			t.Errorf("%d, %s: %v, want %v", i, tc.addr, refused, tc.want)
		}
	}
}

// The client with the most connections loses its longest idle one. A connection is never closed
// while it is used, or so new that its request may be on its way.
func TestEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := wide
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
		open := func(c *conn) bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			h := g.clients[c.client]
			if h == nil {
				return false
			}
			_, is := h.conns[c]
			return is
		}
		lone := add("192.0.2.1")
		first, used, last := add("192.0.2.2"), add("192.0.2.2"), add("192.0.2.2")
		used.busy = true
		if _, refused := g.admit(pipe(t, "192.0.2.3")); refused != errTotal {
			t.Errorf("all are new, and another one is let in: %v", refused)
		}
		time.Sleep(firstRequest)
		add("192.0.2.3")
		if open(first) || !open(lone) || !open(used) || !open(last) {
			t.Errorf("open: lone %v, first %v, used %v, last %v", open(lone), open(first), open(used), open(last))
		}
		for _, c := range []*conn{lone, last} {
			c.busy = true
		}
		g.State(used, http.StateIdle)
		add("192.0.2.4")
		if open(used) || g.Status().Open != l.Total {
			t.Errorf("the answered one is open: %v; %+v", open(used), g.Status())
		}
		if err := last.Close(); err != nil || open(last) || g.Status().Open != l.Total-1 {
			t.Errorf("%v, %+v", err, g.Status())
		}
	})
}

// A client that reads nothing is disconnected, one that reads slowly is not.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := wide
		l.Stall = time.Minute
		g := guard(t, l)
		for name, reads := range map[string]int{"nothing": 0, "slowly": 10} {
			ours, theirs := net.Pipe()
			c, refused := g.admit(from{ours, "192.0.2.1"})
			if refused != nil {
				t.Fatal(refused)
			}
			go func() {
				for range reads {
					time.Sleep(50 * time.Second)
					if _, err := io.CopyN(io.Discard, theirs, piece); err != nil {
						t.Error(err)
					}
				}
			}()
			n, err := c.Write(make([]byte, 10*piece))
			if n != reads*piece || (err != nil) != (reads == 0) {
				t.Errorf("%s: %d, %v", name, n, err)
			}
			// A deadline that a handler sets is kept.
			if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			started := time.Now()
			if _, err := c.Write([]byte("x")); err == nil || time.Since(started) != time.Second {
				t.Errorf("%s: %v after %v", name, err, time.Since(started))
			}
			theirs.Close()
			c.Close()
		}
	})
}

// A refused connection is answered in the format of the API that it calls. One without a free
// descriptor is closed.
func TestRefusals(t *testing.T) {
	l := wide
	l.Total, l.PerAddress = 2, 1
	g := guard(t, l)
	l1, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	arrived, leave := make(chan struct{}), make(chan struct{})
	srv := &http.Server{ConnContext: g.Context, ConnState: g.State, Handler: g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-leave
	}))}
	ended := make(chan error)
	go func() { ended <- srv.Serve(g.Listener(l1)) }()
	dial := func(last byte) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, last)}}
		return d.DialContext(t.Context(), "tcp", l1.Addr().String())
	}
	ask := func(last byte) *bufio.Reader {
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
	refused := func(last byte, status int, code string) {
		t.Helper()
		resp, err := http.ReadResponse(ask(last), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var body string
		err = json.NewDecoder(resp.Body).Decode(&body)
		if err != nil || resp.StatusCode != status || body != "/v1/x "+code || resp.Header.Get("Retry-After") == "" || !resp.Close {
			t.Errorf("%+v %q %v", resp, body, err)
		}
	}
	ask(1)
	<-arrived
	refused(1, http.StatusTooManyRequests, "connections_address")
	ask(2)
	<-arrived
	refused(3, http.StatusServiceUnavailable, "connections_full")
	// The ceiling is below the number of open descriptors.
	g.mu.Lock()
	g.Limits.Files = l.Reserve
	g.mu.Unlock()
	if c, err := dial(1); err == nil { // it may be reset before the dial returns
		if err := c.SetDeadline(hosttest.Deadline()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection with a reserved descriptor is open: %v", err)
		}
	}
	if g.hasFreeDescriptor() {
		t.Error("there is a descriptor to spare")
	}
	close(leave)
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	hosttest.NoMore(t, "connections", 0, func() int { return g.Status().Open })
}

// Zero never means unlimited. A limit above the available descriptors is lowered, or refused.
func TestLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Limits)
		total  int
		code   string
	}{
		"as they are":     {func(*Limits) {}, 100, ""},
		"few descriptors": {func(l *Limits) { l.Files = 200 }, 50, ""},
		"none":            {func(l *Limits) { l.Files = 100 }, 0, "descriptors_too_few"},
		"no total":        {func(l *Limits) { l.Total = 0 }, 0, "connections_limits"},
		"no address":      {func(l *Limits) { l.PerAddress = 0 }, 0, "connections_limits"},
		"no reserve":      {func(l *Limits) { l.Reserve = 0 }, 0, "connections_limits"},
		"no stall":        {func(l *Limits) { l.Stall = 0 }, 0, "connections_limits"},
	} {
		l := wide
		tc.change(&l)
		fitted, err := l.fitted()
		if tc.code == "" && (err != nil || fitted.Total != tc.total) || tc.code != "" && fault.CodeOf(err) != tc.code {
			t.Errorf("%s: %+v, %v", name, fitted, err)
		}
	}
}
