package crannog

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/sandboxtest"
	"github.com/crannog/crannog/internal/server"
)

// newStack returns a client of a server on the fake engine. Service, store, proxy and guest are the
// real ones; the programs of a sandbox run on this machine, without isolation.
func newStack(t testing.TB) *Client {
	t.Helper()
	c, _ := newStackOn(t)
	return c
}

// newStackOn is newStack, and also returns the engine, which holds the instances in memory.
func newStackOn(t testing.TB) (*Client, *fake.Engine) {
	t.Helper()
	dir := t.TempDir()
	home := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	eng, err := fake.New(fake.Options{Dir: filepath.Join(dir, "run"), Guest: func(spec engine.Spec) (map[int]http.Handler, func(), error) {
		return guestServers(spec, home, log)
	}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := server.Open(t.Context(), server.Options{
		StateDir: dir, Log: log, Engines: fake.Registry(eng), Templates: sandboxtest.Template{}, Version: "test",
		Settings: sandbox.Settings{AnyBoundary: true}, // the fake engine has no boundary
	})
	if err != nil {
		t.Fatal(err)
	}
	c := inProcess(context.WithoutCancel(t.Context()), d)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		eng.Close()
	})
	return c, eng
}

// guestServers returns the servers in a sandbox by port: the guest, the interpreter, and a program
// on port 8080.
func guestServers(spec engine.Spec, home string, log *slog.Logger) (map[int]http.Handler, func(), error) {
	ports, end, err := sandboxtest.Guest(spec, home, log)
	if err != nil {
		return nil, nil, err
	}
	ports[8080] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://example.com/", http.StatusFound)
			return
		}
		w.Header().Set("Seen-Host", r.Host)
		w.Header().Set("Seen-Token", r.Header.Get("X-Access-Token"))
		_, _ = w.Write([]byte("from inside"))
	})
	return ports, end, nil
}

func newSandbox(t testing.TB, opts ...CreateOption) *Sandbox {
	t.Helper()
	sb, err := newStack(t).Create(t.Context(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}
