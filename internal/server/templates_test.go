package server

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/egress/secrets"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

const baseID = "base0000000000000000"

// oneTemplate has the template "base" only.
type oneTemplate struct{}

func (oneTemplate) Resolve(_ context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	if ref.Name != "base" && ref.Name != baseID {
		return sandbox.Template{}, sandbox.TemplateUnknown(ref)
	}
	return sandbox.Template{ID: baseID, Name: "base", Image: engine.ViewOf("/", "")}, nil
}

func openFake(t *testing.T) *Server {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	eng, err := fake.New(fake.Options{Dir: filepath.Join(dir, "run")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(eng.Close)
	d, err := Open(t.Context(), Options{
		StateDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Engines: fake.Registry(eng), Templates: oneTemplate{}, Version: "test",
		Settings: sandbox.Settings{AnyBoundary: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return d
}

func count(t *testing.T, d *Server) int {
	t.Helper()
	page, err := d.Service.List(t.Context(), sandbox.Principal{Local: true}, sandbox.Filter{States: []sandbox.State{sandbox.Running}})
	if err != nil {
		t.Fatal(err)
	}
	return len(page.Sandboxes)
}

// The sandbox in which a template is made does not outlive the making, whether it succeeds or not.
func TestMakingATemplateLeavesNoSandbox(t *testing.T) {
	d, ctx, requester := openFake(t), t.Context(), sandbox.Principal{Local: true}
	made := templateSandboxes{d}
	memory, note, err := made.Save(ctx, requester, "base", "v1")
	if err != nil || (memory == "") == (note == "") {
		t.Errorf("memory %q, note %q, %v", memory, note, err)
	}
	if _, _, err := made.Save(ctx, requester, "unknown", "v1"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("of an unknown template: %v", err)
	}
	if n := count(t, d); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	if err := made.Drop(ctx, "unknown"); err != nil {
		t.Errorf("memory that is gone: %v", err)
	}
	if err := made.Sweep(ctx, func(string, string) bool { return false }); err != nil {
		t.Error(err)
	}
}

// A process that died while it made a version leaves a sandbox, which the next one ends.
func TestCleanEndsTheSandboxOfAVersion(t *testing.T) {
	d, ctx, requester := openFake(t), t.Context(), sandbox.Principal{Local: true}
	labels := map[string]string{"v1": templateLabel, "v2": templateLabel, "b1": buildLabel}
	for value, name := range labels {
		if _, err := d.Service.Create(ctx, requester, sandbox.CreateRequest{Template: "base", Metadata: map[string]string{name: value}}); err != nil {
			t.Fatal(err)
		}
	}
	for i, clean := range []func() error{
		func() error { return templateSandboxes{d}.Clean(ctx, "v1") },
		func() error { return templateSandboxes{d}.Clean(ctx, "v1") },
		func() error { return (&buildSandboxes{d: d}).Clean(ctx, "b1") },
		func() error { return (&buildSandboxes{d: d}).Clean(ctx, "v2") },
	} {
		if err := clean(); err != nil {
			t.Fatal(err)
		}
		if n, want := count(t, d), []int{2, 2, 1, 1}[i]; n != want {
			t.Errorf("after step %d there are %d sandboxes, want %d", i, n, want)
		}
	}
}

func TestCommitted(t *testing.T) {
	d, ctx, requester := openFake(t), t.Context(), sandbox.Principal{Local: true}
	sb, err := d.Service.Create(ctx, requester, sandbox.CreateRequest{Template: "base"})
	if err != nil {
		t.Fatal(err)
	}
	c := committed{d}
	if got, err := c.Get(ctx, requester, sb.ID); err != nil || got.ID != sb.ID {
		t.Errorf("%+v %v", got, err)
	}
	if dir, shown, err := c.Tree(ctx, sb.ID); err != nil || dir != "/" || len(shown) != 0 {
		t.Errorf("%q %q %v", dir, shown, err)
	}
	if _, _, err := c.Tree(ctx, "unknown"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("an unknown sandbox: %v", err)
	}
	var changed bytes.Buffer
	_, archives := engine.As[engine.Archiver](d.Engines, sb.Engine)
	if err := c.Archive(ctx, sb, &changed); archives && err != nil || !archives && fault.CodeOf(err) != "commit_unsupported" {
		t.Errorf("%d bytes, %v", changed.Len(), err)
	}
	sb.Engine = "unknown"
	if err := c.Archive(ctx, sb, &changed); fault.CodeOf(err) != "commit_unsupported" {
		t.Errorf("an unknown engine: %v", err)
	}
}

// An entry precedes each change of a secret, also one that then fails.
func TestEachChangeOfASecretHasAnEntry(t *testing.T) {
	d, ctx, requester := openFake(t), t.Context(), secrets.Caller{Local: true}
	v := rotating{d.Secrets, d}
	if _, err := v.Set(ctx, requester, "TOKEN", []byte("first-value"), nil); err != nil {
		t.Fatal(err)
	}
	if info, err := v.Rotate(ctx, requester, "TOKEN", []byte("second-value"), nil); err != nil || info.Name != "TOKEN" {
		t.Errorf("%+v %v", info, err)
	}
	if got, err := d.Secrets.Resolve(ctx, requester, "TOKEN"); err != nil || got.Value.Reveal() != "second-value" {
		t.Errorf("%v %v", got, err)
	}
	// Both generations are under the new key.
	if n, err := v.RotateKey(ctx, requester); err != nil || n != 2 {
		t.Errorf("%d moved, %v", n, err)
	}
	if _, err := v.Remove(ctx, requester, "TOKEN"); err != nil {
		t.Error(err)
	}
	if _, err := v.Rotate(ctx, requester, strings.Repeat("x", 300), []byte("third-value"), nil); err == nil {
		t.Error("a secret that does not exist was rotated")
	}
	if _, err := v.Remove(ctx, requester, "TOKEN"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("removed twice: %v", err)
	}
	var kinds []string
	err := d.Record.Read(ctx, audit.Filter{}, false, func(e audit.Entry) error {
		if len(e.Data) > 700 {
			t.Errorf("an entry of %d bytes", len(e.Data))
		}
		kinds = append(kinds, string(e.Kind))
		return nil
	})
	want := "secret.stored secret.stored secret.stored secret.removed secret.stored action secret.removed action"
	if got := strings.Join(kinds, " "); err != nil || got != want {
		t.Errorf("entries %s, want %s (%v)", got, want, err)
	}
}
