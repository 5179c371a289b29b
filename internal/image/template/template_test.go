package template_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/template"
	"github.com/crannog/crannog/internal/sandbox"
)

// host returns the templates of this host.
func host(t *testing.T) *template.Host {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return template.NewHost(filepath.Join(t.TempDir(), "templates"), self)
}

func TestResolve(t *testing.T) {
	h := host(t)
	base, err := h.Resolve(t.Context(), sandbox.Reference{Name: "base"})
	if err != nil {
		t.Fatal(err)
	}
	byID, err := h.Resolve(t.Context(), sandbox.Reference{Name: base.ID, Tag: "default"})
	if err != nil || byID.Name != "base" || len(base.ID) != 20 {
		t.Errorf("Resolve by the ID %q: got %+v, error %v", base.ID, byID, err)
	}
	if _, err := h.Resolve(t.Context(), sandbox.Reference{Name: "code-interpreter-v1"}); err != nil {
		t.Error(err)
	}
	for _, ref := range []sandbox.Reference{{Name: "nope"}, {Name: "base", Tag: "v2"}} {
		if _, err := h.Resolve(t.Context(), ref); fault.KindOf(err) != fault.NotFound {
			t.Errorf("Resolve(%+v): error %v", ref, err)
		}
	}
}

// The templates for WebAssembly modules show the runner and no other program of the host.
func TestModuleTemplatesShowOnlyTheRunner(t *testing.T) {
	if _, err := host(t).Resolve(t.Context(), sandbox.Reference{Name: "wasm"}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("without a runner: got %v, want NotFound", err)
	}
	runner, quickjs := filepath.Join(t.TempDir(), "runner"), filepath.Join(t.TempDir(), "quickjs.wasm")
	h := host(t).WithRunner(runner, quickjs)
	for name, deterministic := range map[string]bool{"wasm": false, "wasm-deterministic": true} {
		got, err := h.Resolve(t.Context(), sandbox.Reference{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		view := got.Image.View()
		if view.Runner == nil || view.Runner.Deterministic != deterministic {
			t.Errorf("%s: the runner is %+v, want deterministic %t", name, view.Runner, deterministic)
		}
		for _, b := range view.Binds {
			if want, known := map[string]string{template.RunnerTarget: runner, template.JavaScriptTarget: quickjs}[b.Target]; b.Target != template.GuestTarget && (!known || b.Source != want) {
				t.Errorf("%s shows %+v", name, b)
			}
		}
		if _, err := os.Stat(filepath.Join(view.Dir, "usr")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s has a /usr: %v", name, err)
		}
	}
	if _, err := h.Resolve(t.Context(), sandbox.Reference{Name: "wasm", Tag: "v2"}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("an unknown tag: got %v, want NotFound", err)
	}
}

func TestImageShowsOnlyProgramsOfHost(t *testing.T) {
	image, err := host(t).Image()
	if err != nil {
		t.Fatal(err)
	}
	root := image.View()
	for _, b := range root.Binds {
		if strings.HasPrefix(b.Target, "/usr") || strings.HasPrefix(b.Target, "/bin") || strings.HasPrefix(b.Target, "/sbin") ||
			strings.HasPrefix(b.Target, "/lib") || b.Target == template.GuestTarget {
			continue
		}
		if !strings.HasPrefix(b.Target, "/etc/") || strings.HasPrefix(b.Target, "/etc/ssl/private") || b.Target == "/etc/ssl" {
			t.Errorf("the image shows %s at %s", b.Source, b.Target)
		}
	}
	if !slices.ContainsFunc(root.Binds, func(b engine.Bind) bool { return b.Target == "/usr" }) {
		t.Error("the image does not show /usr")
	}
	for _, b := range root.Binds {
		if _, err := os.Lstat(filepath.Join(root.Dir, b.Target)); err != nil {
			t.Errorf("the mount point %s is missing: %v", b.Target, err)
		}
	}
	hostPasswd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile(filepath.Join(root.Dir, "etc/passwd"))
	if err != nil || string(ours) == string(hostPasswd) {
		t.Errorf("etc/passwd: got the host's file or error %v", err)
	}
	if _, err := os.Stat(filepath.Join(root.Dir, "etc/ssh")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("etc/ssh: got %v, want no such directory", err)
	}
}

func TestImageIsCreatedOnce(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	first, err := template.NewHost(dir, self).Image()
	if err != nil {
		t.Fatal(err)
	}
	second, err := template.NewHost(dir, self).Image()
	if err != nil || !second.Equal(first) {
		t.Errorf("second Image: got %v, error %v, want %v", second, err, first)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("template directory: got entries %v, error %v, want one", entries, err)
	}
}
