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

// countRunning returns the number of running sandboxes.
func countRunning(t *testing.T, d *Server) int {
	t.Helper()
	page, err := d.Service.List(t.Context(), sandbox.Principal{Local: true}, sandbox.Filter{States: []sandbox.State{sandbox.Running}})
	if err != nil {
		t.Fatal(err)
	}
	return len(page.Sandboxes)
}

// The sandbox in which a template is created is removed, whether the creation succeeds or fails.
func TestSaveTemplateLeavesNoSandbox(t *testing.T) {
	d, ctx, requester := openFake(t), t.Context(), sandbox.Principal{Local: true}
	sandboxes := templateSandboxes{d}
	memory, note, err := sandboxes.Save(ctx, requester, "base", "v1")
	if err != nil || (memory == "") == (note == "") {
		t.Errorf("Save: got memory %q and note %q (%v), want one of the two", memory, note, err)
	}
	if _, _, err := sandboxes.Save(ctx, requester, "unknown", "v1"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("unknown template: got %v, want NotFound", err)
	}
	if n := countRunning(t, d); n != 0 {
		t.Errorf("got %d running sandboxes, want none", n)
	}
	if err := sandboxes.Drop(ctx, "unknown"); err != nil {
		t.Errorf("Drop of unknown memory: got %v, want nil", err)
	}
	if err := sandboxes.Sweep(ctx, func(string, string) bool { return false }); err != nil {
		t.Error(err)
	}
}

// A process that died while it created a version leaves a sandbox. Clean of the next process
// removes it.
func TestCleanRemovesSandboxOfVersion(t *testing.T) {
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
		if n, want := countRunning(t, d), []int{2, 2, 1, 1}[i]; n != want {
			t.Errorf("step %d: got %d sandboxes, want %d", i, n, want)
		}
	}
}

func TestCommittedReturnsTreeAndChanges(t *testing.T) {
	d, ctx, requester := openFake(t), t.Context(), sandbox.Principal{Local: true}
	sb, err := d.Service.Create(ctx, requester, sandbox.CreateRequest{Template: "base"})
	if err != nil {
		t.Fatal(err)
	}
	c := committed{d}
	if got, err := c.Get(ctx, requester, sb.ID); err != nil || got.ID != sb.ID {
		t.Errorf("Get: got %+v, error %v", got, err)
	}
	if dir, shown, err := c.Tree(ctx, sb.ID); err != nil || dir != "/" || len(shown) != 0 {
		t.Errorf("Tree: got %q, mounts %q, error %v, want / without mounts", dir, shown, err)
	}
	if _, _, err := c.Tree(ctx, "unknown"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("unknown sandbox: got %v, want NotFound", err)
	}
	var changed bytes.Buffer
	_, archives := engine.As[engine.Archiver](d.Engines, sb.Engine)
	if err := c.Archive(ctx, sb, &changed); archives && err != nil || !archives && fault.CodeOf(err) != "commit_unsupported" {
		t.Errorf("Archive: got %d bytes and %v", changed.Len(), err)
	}
	sb.Engine = "unknown"
	if err := c.Archive(ctx, sb, &changed); fault.CodeOf(err) != "commit_unsupported" {
		t.Errorf("unknown engine: got %v, want commit_unsupported", err)
	}
}

// An entry precedes each change of a secret, even of one that then fails.
func TestChangesOfSecretsAreRecorded(t *testing.T) {
	d, ctx, requester := openFake(t), t.Context(), secrets.Caller{Local: true}
	v := auditedVault{d.Secrets, d}
	if _, err := v.Set(ctx, requester, "TOKEN", []byte("first-value"), nil); err != nil {
		t.Fatal(err)
	}
	if info, err := v.Rotate(ctx, requester, "TOKEN", []byte("second-value"), nil); err != nil || info.Name != "TOKEN" {
		t.Errorf("Rotate: got %+v, error %v", info, err)
	}
	if got, err := d.Secrets.Resolve(ctx, requester, "TOKEN"); err != nil || got.Value.Reveal() != "second-value" {
		t.Errorf("Resolve: got %v, error %v, want the second value", got, err)
	}
	// Both generations are under the new key.
	if n, err := v.RotateKey(ctx, requester); err != nil || n != 2 {
		t.Errorf("RotateKey: moved %d secrets (%v), want 2", n, err)
	}
	if _, err := v.Remove(ctx, requester, "TOKEN"); err != nil {
		t.Error(err)
	}
	if _, err := v.Rotate(ctx, requester, strings.Repeat("x", 300), []byte("third-value"), nil); err == nil {
		t.Error("Rotate accepted a secret that does not exist")
	}
	if _, err := v.Remove(ctx, requester, "TOKEN"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("second Remove: got %v, want NotFound", err)
	}
	var kinds []string
	err := d.Audit.Read(ctx, audit.Filter{}, false, func(e audit.Entry) error {
		if len(e.Data) > 700 {
			t.Errorf("entry of %d bytes, want at most 700", len(e.Data))
		}
		kinds = append(kinds, string(e.Kind))
		return nil
	})
	want := "secret.stored secret.stored secret.stored secret.removed secret.stored action secret.removed action"
	if got := strings.Join(kinds, " "); err != nil || got != want {
		t.Errorf("got the entries %s (%v), want %s", got, err, want)
	}
}
