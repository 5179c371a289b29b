package enginetest

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// fakeGateway is the gateway's end of a sandbox without a network interface. It returns requests in
// lower case, and answers names with the reversed query.
type fakeGateway struct {
	listener *net.UnixListener

	mu   sync.Mutex
	seen []string
}

// startProxied creates a sandbox without a network interface.
func (c *Config) startProxied(t testing.TB, e engine.Engine) (*testSandbox, *fakeGateway) {
	t.Helper()
	g := &fakeGateway{}
	b := c.start(t, e, func(s *engine.Spec) {
		config := s.Boot.Config
		s.Egress = engine.Egress{Kind: engine.EgressProxy, Attach: func(_ context.Context, end *os.File) ([]byte, error) {
			l, err := net.FileListener(end)
			if err != nil {
				return nil, err
			}
			g.listener = l.(*net.UnixListener)
			return config, nil
		}}
	})
	if g.listener == nil {
		t.Fatal("the engine created a sandbox without a call of Attach")
	}
	served := make(chan struct{})
	go func() { defer close(served); g.serve() }()
	t.Cleanup(func() { g.listener.Close(); <-served })
	return b, g
}

// serve answers streams until the listener is closed.
func (g *fakeGateway) serve() {
	for {
		stream, err := g.listener.AcceptUnix()
		if err != nil {
			return
		}
		go g.answer(stream)
	}
}

func (g *fakeGateway) answer(stream *net.UnixConn) {
	defer stream.Close()
	first := make([]byte, 2)
	if _, err := io.ReadFull(stream, first); err != nil {
		return
	}
	if size := binary.BigEndian.Uint16(first); size <= 4096 {
		query := make([]byte, size)
		if _, err := io.ReadFull(stream, query); err != nil {
			return
		}
		g.note("query")
		slices.Reverse(query)
		_, _ = stream.Write(append(first, query...))
		return
	}
	rest, err := io.ReadAll(stream)
	request := string(first) + string(rest)
	if err == nil {
		g.note(request)
		_, _ = io.WriteString(stream, strings.ToLower(request))
	}
}

func (g *fakeGateway) note(what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = append(g.seen, what)
}

// requests returns what has reached the gateway.
func (g *fakeGateway) requests() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.seen)
}

// exchange sends a text to a port of the sandbox's proxy, ends the request and prints the answer.
func exchange(text string) string {
	return python(`s = socket.create_connection(("127.0.0.53", 3128)); s.sendall(b"` + text + `"); s.shutdown(1)
d = b""
while True:
    p = s.recv(65536)
    if not p: break
    d += p
print(d.decode())`)
}

// proxyRules are about a sandbox without a network interface, whose guest connects programs to the
// gateway (P68).
var proxyRules = []rule{
	{"proxy/connections-and-names-reach-the-gateway", func(t testing.TB, c *Config) {
		b, g := c.startProxied(t, c.Open(t, t.TempDir()))
		b.want(t, exchange("CONNECT A"), "connect a")
		b.want(t, python(`s = socket.socket(2, 2); s.settimeout(20); s.connect(("127.0.0.53", 53)); s.send(b"0123456789abcdef"); print(s.recv(512).decode())`), "fedcba9876543210")
		// Many connections at once, each with more data than buffers hold.
		b.want(t, python(`import threading
ok = []
def one(i):
    s = socket.create_connection(("127.0.0.53", 3128)); data = b"X%d" % i * 300000
    threading.Thread(target=lambda: (s.sendall(data), s.shutdown(1))).start()
    got = bytearray()
    while True:
        p = s.recv(1 << 20)
        if not p: break
        got += p
    ok.append(bytes(got) == data.lower())
all = [threading.Thread(target=one, args=(i,)) for i in range(8)]
for t in all: t.start()
for t in all: t.join()
print(ok.count(True))`), "8")
		if seen := g.requests(); len(seen) != 10 || !slices.Contains(seen, "query") {
			t.Errorf("%d requests reached the gateway, want 10", len(seen))
		}
	}},
	{"proxy/nothing-else-leaves", func(t testing.TB, c *Config) {
		b, g := c.startProxied(t, c.Open(t, t.TempDir()))
		for _, to := range []string{"198.18.0.7", "10.199.0.1", "1.1.1.1", "169.254.169.254"} {
			b.want(t, python(dialing(to, 80)), "ENETUNREACH")
			b.want(t, python(`s = socket.socket(2, 2)
try: s.sendto(b"x", ("`+to+`", 53)); print("sent")
except OSError as e: print(errno.errorcode[e.errno])`), "ENETUNREACH")
		}
		b.want(t, python(`print(*[name for _, name in socket.if_nameindex() if name in ("lo", "eth0")])`), "lo")
		// The control: the gateway can be reached, by the proxy alone.
		b.want(t, exchange("GET B"), "get b")
		if seen := g.requests(); !slices.Equal(seen, []string{"GET B"}) {
			t.Errorf("the gateway got %q", seen)
		}
	}},
	{"proxy/programs-cannot-reach-the-gateways-socket", func(t testing.TB, c *Config) {
		b, g := c.startProxied(t, c.Open(t, t.TempDir()))
		// A program that had the guest's reference could use it after the guest's end.
		b.want(t, python(`import os, glob
n = 0
for fd in glob.glob("/proc/[0-9]*/fd/*"):
    if fd.startswith("/proc/%d/" % os.getpid()): continue
    s = socket.socket(1, 1)
    try: s.connect(fd); n += 1
    except OSError: pass
print(n)`), "0")
		b.want(t, exchange("GET C"), "get c")
		if seen := g.requests(); !slices.Equal(seen, []string{"GET C"}) {
			t.Errorf("the gateway got %q", seen)
		}
	}},
	{"proxy/continues-after-a-restart", func(t testing.TB, c *Config) {
		dir := t.TempDir()
		e := c.Open(t, dir)
		b, g := c.startProxied(t, e)
		b.want(t, exchange("GET D"), "get d")
		if closer, ok := e.(io.Closer); ok {
			if err := closer.Close(); err != nil {
				t.Fatal(err)
			}
		}
		next := c.Open(t, dir)
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan struct{})
		go func() { defer close(waited); _, _ = next.Wait(ctx, b.id) }()
		defer func() { cancel(); <-waited }()
		again := attach(t, next, b.id)
		hosttest.Eventually(t, "the network works again", func() bool {
			r := again.sh(t, exchange("GET E"))
			return strings.TrimSpace(r.stdout) == "get e"
		})
		if seen := g.requests(); !slices.Contains(seen, "GET E") {
			t.Errorf("the gateway got %q", seen)
		}
	}},
	{"proxy/a-failed-attachment-leaves-nothing", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		spec := c.spec(newID())
		spec.Egress = engine.Egress{Kind: engine.EgressProxy, Attach: func(context.Context, *os.File) ([]byte, error) { return nil, io.ErrUnexpectedEOF }}
		if err := e.Create(t.Context(), spec); err == nil || !strings.Contains(err.Error(), io.ErrUnexpectedEOF.Error()) {
			t.Errorf("create: %v, want the error of Attach", err)
		}
		if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("sandboxes left behind: %v %v", list, err)
		}
	}},
	{"proxy/cycles-leave-nothing", func(t testing.TB, c *Config) {
		dir := t.TempDir()
		e := c.Open(t, dir)
		cycle := func() {
			b, g := c.startProxied(t, e)
			b.want(t, exchange("GET F"), "get f")
			b.client.CloseIdleConnections()
			if err := e.Remove(t.Context(), b.id); err != nil {
				t.Fatal(err)
			}
			g.listener.Close()
		}
		cycle() // it may create files that all later ones share
		before := c.count(t, dir)
		for range min(c.Cycles, 5) {
			cycle()
		}
		hosttest.EventuallyNoError(t, func() error {
			if left := hosttest.Grown(before, c.count(t, dir)); len(left) > 0 {
				return fmt.Errorf("left: %v", left)
			}
			return nil
		})
	}},
}
