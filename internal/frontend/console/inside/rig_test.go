package inside_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/frontend/console/inside"
	"github.com/crannog/crannog/internal/frontend/console/session"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/sandboxtest"
	"github.com/crannog/crannog/internal/server"
)

// stack is a server on an engine without a boundary: service, store, proxy, audit log and guest are
// the real ones, and programs run directly on this host.
type stack struct {
	t      testing.TB
	url    string
	home   string
	sb     sandbox.Sandbox
	daemon *server.Server
	client *http.Client
	header http.Header // added to each request
}

// testHandler serves requests for the caller that the header Who names, such as alice/operator. The
// real console takes the caller from the cookie.
type testHandler struct{ *inside.Inside }

func (d testHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, level, _ := strings.Cut(r.Header.Get("Who"), "/")
	scope, _ := session.ParseScope(level) // none without a name
	d.ServeSession(w, r, session.Session{ID: name, Name: name, Scope: scope})
}

func newStack(t testing.TB) *stack {
	t.Helper()
	dir, home := t.TempDir(), t.TempDir()
	log := slog.New(slog.DiscardHandler)
	eng, err := fake.New(fake.Options{Dir: filepath.Join(dir, "run"), Guest: func(spec engine.Spec) (map[int]http.Handler, func(), error) {
		return sandboxtest.Guest(spec, home, log)
	}})
	if err != nil {
		t.Fatal(err)
	}
	open := func(in server.Backend) server.Frontend {
		x, err := inside.New(inside.Deps{
			Sandboxes: in.Server.Service, Census: in.Server.Service, Dial: in.DialAs, Audit: in.Server.Audit, Log: in.Log, Domain: "sandboxes.test",
		})
		if err != nil {
			t.Fatal(err)
		}
		return testHandler{x}
	}
	d, err := server.Open(t.Context(), server.Options{
		StateDir: dir, Log: log, Engines: fake.Registry(eng), Templates: sandboxtest.Template{}, Version: "test", Server: true,
		Settings: sandbox.Settings{AnyBoundary: true}, Frontends: []server.FrontendMount{{Path: "/console", Open: open}},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx, l) }()
	s := &stack{t: t, url: "http://" + l.Addr().String(), home: home, daemon: d, client: &http.Client{Timeout: 2 * time.Minute}}
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := d.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		eng.Close()
	})
	s.sb, err = d.Service.Create(t.Context(), sandbox.Principal{Local: true}, sandbox.CreateRequest{Template: "base", Name: "one"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// do sends a request as a caller, such as "alice/operator".
func (s *stack) do(caller, method, path, body string) (*http.Response, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+inside.Path+s.sb.ID+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	maps.Copy(req.Header, s.header)
	req.Header.Set("Who", caller)
	res, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res, string(text)
}

// request is like do, but fails the test on an error status, and decodes the JSON response.
func (s *stack) request(caller, method, path, body string, into any) {
	s.t.Helper()
	res, text := s.do(caller, method, path, body)
	if res.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %s %s", method, path, res.Status, text)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			s.t.Fatalf("%s %s: %s: %v", method, path, text, err)
		}
	}
}

// entries returns the sandbox's audit entries of one kind.
func (s *stack) entries(kind audit.Kind) []audit.Entry {
	s.t.Helper()
	var out []audit.Entry
	err := s.daemon.Audit.Read(s.t.Context(), audit.Filter{Sandbox: s.sb.ID, Kinds: []audit.Kind{kind}}, false, func(e audit.Entry) error {
		out = append(out, e)
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}
