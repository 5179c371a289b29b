package wasm_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/enginetest"
	"github.com/crannog/crannog/internal/engine/jail"
	"github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/engine/linux/ocispec"
	"github.com/crannog/crannog/internal/engine/wasm"
	"github.com/crannog/crannog/internal/engine/wasm/runner"
	"github.com/crannog/crannog/internal/guest/guestmain"
	"github.com/crannog/crannog/internal/host/embedded/quickjsbin"
	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/image/template"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// The test binary has every role: the first process of a jail, the guest that it becomes, and the
// runner.
func TestMain(m *testing.M) {
	reexec.Dispatch(setup.Role(), setup.ProbeRole(), runner.Role(), enginetest.ProbeRole(),
		reexec.Role{Match: reexec.Arg0(ocispec.GuestArg0), Run: guestmain.Main})
	os.Exit(m.Run())
}

// buildModule builds the module for the tests, or that of another directory.
func buildModule(t testing.TB, dir ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program.wasm")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, append(dir, "./testdata/program")[0])
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// copyOfBinary returns a copy of the test binary, because other users may not enter its directory.
func copyOfBinary(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	data, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(path, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// image returns the template with the module as its shell.
func image(t testing.TB, name, program string, module []byte) engine.Image {
	t.Helper()
	host := template.NewHost(filepath.Join(t.TempDir(), "templates"), program).WithRunner(program, quickJS(t))
	found, err := host.Resolve(t.Context(), sandbox.Reference{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	view := *found.Image.HostView
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(view.Dir)); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{"tmp": 0o777 | os.ModeSticky, "var/tmp": 0o777 | os.ModeSticky, ".": 0o755} {
		if err := os.Chmod(filepath.Join(dir, path), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sh", "program"} {
		if err := os.WriteFile(filepath.Join(dir, "bin", name), module, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	view.Dir = dir
	found.Image.HostView = &view
	return found.Image
}

// quickJS returns the path of the module that runs JavaScript.
func quickJS(t testing.TB) string {
	t.Helper()
	path, err := quickjsbin.Path(filepath.Join(t.TempDir(), "javascript"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// open returns a function that opens the engine.
func open(program string, noCgroups bool) func(t testing.TB, dir string) engine.Engine {
	return func(t testing.TB, dir string) engine.Engine {
		t.Helper()
		shareModules(t, dir, filepath.Dir(program))
		e, err := wasm.New(wasm.Options{StateDir: dir, Runner: program, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), NoCgroups: noCgroups})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
}

// shareModules makes the engines of a test share compiled modules, because compiling the test
// module takes a second.
func shareModules(t testing.TB, dir, shared string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, wasm.Name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(shared, "modules"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(shared, "modules"), filepath.Join(dir, wasm.Name, ".modules")); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
}

// residue counts the engine's resources for a state directory.
func residue(t testing.TB, dir string) map[string]int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	want := setup.Arg0 + "\x00" + jail.Tag(filepath.Join(dir, wasm.Name)) + "-"
	for _, path := range files {
		if data, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(data), want) {
			counts["processes"]++
		}
	}
	slots, _ := os.ReadDir(filepath.Join(dir, "jail", ".ids")) // none, if no sandbox was created
	counts["ranges of IDs"] = len(slots)
	for _, pattern := range []string{"/sys/fs/cgroup/crannog/wasm-*", "/sys/fs/cgroup/*/crannog/wasm-*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range found {
			if _, err := os.Stat(filepath.Join(dir, wasm.Name, strings.TrimPrefix(filepath.Base(group), "wasm-"))); err == nil {
				counts["groups"]++
			}
		}
	}
	return counts
}

func TestConformance(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	program, module := copyOfBinary(t), buildModule(t)
	enginetest.Run(t, enginetest.Config{
		Open: open(program, false), Image: image(t, sandbox.ModuleTemplate, program, module), Residue: residue, Cycles: 5,
	})
}

// Two engines with the same state directory never give the same range of IDs to two sandboxes.
func TestIDRangesAreSharedWithJail(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	program, dir := copyOfBinary(t), t.TempDir()
	e := open(program, false)(t, dir)
	jailed, err := jail.New(jail.Options{StateDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	// For the same ID, the search begins at the same range.
	const id = "same"
	b := start(t, e, image(t, sandbox.ModuleTemplate, program, emptyModule), id)
	host, err := template.NewHost(filepath.Join(t.TempDir(), "templates"), program).Image()
	if err != nil {
		t.Fatal(err)
	}
	other := engine.Spec{ID: id, Hostname: id, Image: host, Boot: engine.Boot{Config: b.config}}
	if err := jailed.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = jailed.Remove(context.Background(), id) })
	slots, err := os.ReadDir(filepath.Join(dir, "jail", ".ids"))
	if err != nil || len(slots) != 2 {
		t.Errorf("the ranges in use are %v, %v; want two", slots, err)
	}
}

// emptyModule is the smallest module.
var emptyModule = []byte("\x00asm\x01\x00\x00\x00")
