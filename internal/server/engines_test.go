package server_test

import (
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server"
)

// openOn opens a state directory with engines of these names. The first is the default.
func openOn(t *testing.T, dir string, names ...string) *server.Server {
	t.Helper()
	var engines []engine.Engine
	for _, name := range names {
		e, err := fake.New(fake.Options{Dir: filepath.Join(dir, name), Name: name, Guest: guestHandlers})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		engines = append(engines, e)
	}
	d, err := server.Open(t.Context(), server.Options{
		StateDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Engines: fake.Registry(engines...), Templates: templates{},
		Version: "test", Settings: sandbox.Settings{AnyBoundary: true}, // the fakes have none
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeServer(t, d) })
	return d
}

// A server without an engine leaves the sandboxes of the engine alone. The next server with the
// engine adopts them.
func TestMissingEngineKeepsSandboxes(t *testing.T) {
	dir, ctx := filepath.Join(t.TempDir(), "state"), t.Context()
	d := openOn(t, dir, "one", "two")
	first, err := d.Service.Create(ctx, local, sandbox.CreateRequest{Template: "base"})
	if err != nil || first.Engine != "one" {
		t.Fatalf("got %+v, %v; want a sandbox of the engine one", first, err)
	}
	second, err := d.Service.Create(ctx, local, sandbox.CreateRequest{Template: "base", Engine: "two"})
	if err != nil || second.Engine != "two" {
		t.Fatalf("got %+v, %v; want a sandbox of the engine two", second, err)
	}
	closeServer(t, d)

	d = openOn(t, dir, "one")
	if !slices.Equal(d.Report.Adopted, []string{first.ID}) || !slices.Equal(d.Report.Unserved, []string{second.ID}) {
		t.Errorf("report without the engine two: got %+v, want its sandbox unserved", d.Report)
	}
	if err := d.Service.Remove(ctx, local, second.ID); fault.CodeOf(err) != engine.CodeUnavailable {
		t.Errorf("Remove without the engine: got %v, want %s", err, engine.CodeUnavailable)
	}
	page, err := d.Service.List(ctx, local, sandbox.Filter{})
	if err != nil || len(page.Sandboxes) != 2 {
		t.Errorf("List without the engine: got %+v (%v), want both sandboxes", page.Sandboxes, err)
	}
	closeServer(t, d)

	d = openOn(t, dir, "two", "one")
	if len(d.Report.Adopted) != 2 || len(d.Report.Unserved) != 0 {
		t.Errorf("report with both engines: got %+v, want both adopted", d.Report)
	}
	if u, err := d.Service.Usage(ctx, second.ID); err != nil || u.At.IsZero() {
		t.Errorf("Usage with both engines: got %+v, %v", u, err)
	}
	if err := d.Service.Remove(ctx, local, second.ID); err != nil {
		t.Errorf("Remove with both engines: %v", err)
	}
}
