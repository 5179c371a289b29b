package ingress_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/ingress"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
)

// inside implements Traffic with servers of this process in place of sandboxes.
type inside struct {
	t     testing.TB
	dials atomic.Int64

	mu           sync.Mutex
	sandboxes    map[string]*sb
	paused       map[string]*sb // sandboxes that are paused
	resumed      []string
	beforeResume func(id string) error // called by Wake before it resumes
	// afterFailedLookup is called, unless nil, after a look-up that found no live sandbox.
	afterFailedLookup func()
}

type sb struct {
	sandbox.Sandbox
	redactor *sandbox.Redactor
	lost     error // error of Redactor
	gone     chan struct{}
	ports    map[int]string // unix socket, by port
}

func (in *inside) Live(id string) (sandbox.Sandbox, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	b, ok := in.sandboxes[id]
	if !ok {
		if in.afterFailedLookup != nil {
			in.mu.Unlock()
			in.afterFailedLookup()
			in.mu.Lock()
		}
		return sandbox.Sandbox{}, false
	}
	return b.Sandbox, true
}

func (in *inside) LiveAll(yield func(sandbox.Sandbox) bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, b := range in.sandboxes {
		if !yield(b.Sandbox) {
			return
		}
	}
}

func (in *inside) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	in.dials.Add(1)
	in.mu.Lock()
	b, ok := in.sandboxes[id]
	var socket string
	if ok {
		socket = b.ports[port]
	}
	in.mu.Unlock()
	switch {
	case !ok:
		return nil, fault.New(fault.NotFound, "sandbox_not_found", "no such sandbox")
	case socket == "":
		return nil, fault.New(fault.Unavailable, "port_closed", "no listener")
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", socket)
}

func (in *inside) Redactor(_ context.Context, id string) (*sandbox.Redactor, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	b, ok := in.sandboxes[id]
	if !ok {
		return nil, fault.New(fault.NotFound, "sandbox_not_found", "no such sandbox")
	}
	return b.redactor, b.lost
}

func (in *inside) Gone(id string) <-chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	if b, ok := in.sandboxes[id]; ok {
		return b.gone
	}
	return nil
}

// add creates a sandbox.
func (in *inside) add(id string, change func(*sandbox.Sandbox)) {
	s := sandbox.Sandbox{ID: id, State: sandbox.Running, AccessToken: "token-" + id}
	if change != nil {
		change(&s)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.sandboxes[id] = &sb{Sandbox: s, gone: make(chan struct{}), ports: map[int]string{}}
}

// kill ends a sandbox as the service does: it is no longer live before its channel is closed.
func (in *inside) kill(id string) {
	in.mu.Lock()
	b := in.sandboxes[id]
	delete(in.sandboxes, id)
	in.mu.Unlock()
	close(b.gone)
}

// serve lets a handler listen on a port of a sandbox.
func (in *inside) serve(id string, port int, h http.Handler) {
	in.listen(id, port, func(l net.Listener) {
		s := httptest.NewUnstartedServer(h)
		s.Listener = l
		s.Start()
		in.t.Cleanup(s.Close)
	})
}

func (in *inside) listen(id string, port int, start func(net.Listener)) {
	in.t.Helper()
	socket := filepath.Join(in.t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		in.t.Fatal(err)
	}
	start(l)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.sandboxes[id].ports[port] = socket
}

// testProxy is a proxy in front of one sandbox, whose guest and port 3000 report the requests that
// they received.
type testProxy struct {
	*inside
	proxy *ingress.Proxy
	front *httptest.Server
}

const boxID = "i0000000000000000001"

func newTestProxy(t testing.TB) *testProxy {
	t.Helper()
	in := &inside{t: t, sandboxes: map[string]*sb{}, paused: map[string]*sb{}}
	in.add(boxID, nil)
	in.serve(boxID, guestboot.Port, echo("guest"))
	in.serve(boxID, 3000, echo("program"))
	p := ingress.New(ingress.Deps{Traffic: in, Waker: in, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	t.Cleanup(p.Close)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.Match(r) {
			w.Header().Set("X-Control-Plane", "yes")
			return
		}
		p.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	return &testProxy{inside: in, proxy: p, front: front}
}

// echo answers with the request.
func echo(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Reached", name)
		w.Header().Set("X-Host", r.Host)
		w.Header().Set("X-Uri", r.RequestURI)
		for k, v := range r.Header {
			for _, one := range v {
				w.Header().Add("Got-"+k, one)
			}
		}
		buffer := make([]byte, 1<<16)
		for {
			n, err := r.Body.Read(buffer)
			if _, werr := w.Write(buffer[:n]); werr != nil || err != nil {
				return
			}
		}
	})
}

// request makes a request to a port of the sandbox, by headers.
func (w *testProxy) request(t testing.TB, port int, method, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, w.front.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("E2b-Sandbox-Id", boxID)
	r.Header.Set("E2b-Sandbox-Port", fmt.Sprint(port))
	return r
}
