package escape_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/tests/escape/attempts"
)

// moduleAttempts are the attempts that a WebAssembly module can express, by class. testdata/module
// makes them.
var moduleAttempts = []struct {
	class string
	names []string
}{
	{"paths", []string{"parent-of-directory", "parent-after-directory", "absolute-path", "absolute-path-many-slashes", "path-with-zero", "create-outside", "rename-outside"}},
	{"links", []string{"own-link-to-parent", "own-link-to-link", "link-of-host", "directory-link-of-host", "hard-link-to-link"}},
	{"/proc, /sys and the guest", []string{"own-memory", "own-memory-by-parent", "first-process", "kernel-settings", "guest-program"}},
	{"descriptors", []string{"unknown-descriptors"}},
	{"resources", []string{"much-memory", "large-file", "many-files", "endless-loop"}},
	{hostileModules, nil}, // those of hostile
}

// hostileModules is the class of modules whose content is the attack.
const hostileModules = "content of modules"

// loopTime is how long the endless loops run until they are ended.
const loopTime = 2 * time.Second

// Exit codes of a command whose time has passed, of a module that cannot be run, and of one that
// trapped.
const (
	codeTimeout = 124
	codeInvalid = 126
	codeTrap    = 134
)

// moduleResult is the key of the result in the results' file.
const moduleResult = "wasm"

// P59: no attempt of a module succeeds in a sandbox. As the control, each succeeds in the same
// runtime without the runner's confinement, with the host's root as the module's. Paths that this
// runtime refuses because of their text have another control: the same calls with paths that stay
// inside (refusedByText). The control of hostile modules is a valid one.
func TestModuleEscapes(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	if !hosttest.Full() {
		t.Skip("part of make test-escape, because it compiles two modules and waits for time limits")
	}
	h := newHost(t)
	module := buildModule(t)
	secret := h.target.Secrets["/var/tmp"]
	controlModule(t, module, secret)
	place(t, h.workspace, module, secret)
	h.before = h.state(t)
	sb, err := h.client.Create(t.Context(), crannog.Engine("wasm"), crannog.Level("light"), crannog.Workspace(h.workspace), crannog.Limits(limits))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Kill(context.Background()); err != nil {
			t.Errorf("remove the sandbox: %v", err)
		}
	})
	run := func(name string, argv ...string) (text string, code int, err error) {
		command := api.Exec{Cmd: argv, Cwd: "/workspace"}
		if strings.HasSuffix(name, "loop") {
			command.TimeoutSeconds = loopTime.Seconds()
		}
		res, err := sb.Exec(t.Context(), command)
		return res.Stdout + res.Stderr, res.ExitCode, err
	}
	if text, code, err := run("valid", "/workspace/valid.wasm"); err != nil || code != 0 {
		t.Fatalf("control: a valid module returned %q, %d, %v", text, code, err)
	}
	found := result{Blocked: map[string]int{}}
	check := func(class, name string, blocked bool, text string) {
		t.Logf("%-28s %s", name, text)
		if found.Attempts++; blocked {
			found.Blocked[class]++
		} else {
			t.Errorf("%s (%s) succeeded: %s", name, class, text)
		}
	}
	for _, c := range moduleAttempts {
		for _, name := range c.names {
			text, code, err := run(name, "/workspace/module.wasm", name, secret)
			check(c.class, name, wasRefused(name, text, code, err), text)
		}
	}
	for name := range hostile() {
		text, code, err := run(name, "/workspace/"+name+".wasm")
		refused := err == nil && slices.Contains([]int{codeTimeout, codeInvalid, codeTrap}, code) || err != nil && strings.Contains(err.Error(), "WebAssembly")
		check(hostileModules, name, refused, fmt.Sprint(text, code, err))
	}
	h.wantUnchanged(t)
	for _, name := range []string{"created", "moved"} {
		if _, err := os.Stat(filepath.Join(filepath.Dir(secret), name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was made outside of the sandbox: %v", name, err)
		}
	}
	if !t.Failed() {
		compare(t, moduleResult, found)
	}
}

// wasRefused reports whether an attempt was refused. Nothing else may have ended the module.
func wasRefused(name, text string, code int, err error) bool {
	switch name {
	case "endless-loop":
		return err == nil && code == codeTimeout
	case "much-memory":
		return strings.Contains(text, "out of memory") || strings.Contains(text, "cannot allocate memory")
	case "unknown-descriptors": // there are no others to ask for, so that there is no error
		return err == nil && text == "blocked <nil>\n"
	}
	return err == nil && code == 0 && strings.HasPrefix(text, "blocked ") && text != "blocked <nil>\n"
}

// buildModule builds the module that makes the attempts.
func buildModule(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "module.wasm")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./testdata/module")
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

// place writes what the attempts use into a directory.
func place(t *testing.T, dir string, module []byte, secret string) {
	t.Helper()
	files := hostile()
	files["module"], files["valid"] = module, validModule()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name+".wasm"), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "text"), []byte("text"), 0o644), os.Mkdir(filepath.Join(dir, "d"), 0o755),
		os.Symlink(secret, filepath.Join(dir, "hostlink")), os.Symlink(filepath.Dir(secret), filepath.Join(dir, "hostdir"))); err != nil {
		t.Fatal(err)
	}
}

// refusedByText lists the attempts whose paths wazero refuses because of their text.
var refusedByText = []string{
	"parent-of-directory", "parent-after-directory", "absolute-path", "absolute-path-many-slashes", "path-with-zero",
	"create-outside", "rename-outside", "own-memory-by-parent",
}

// output collects what a module prints, and ends a module that begins an endless loop.
type output struct {
	strings.Builder
	looping func()
}

// Write implements io.Writer.
func (o *output) Write(data []byte) (int, error) {
	if strings.HasPrefix(string(data), "looping") {
		o.looping()
	}
	return o.Builder.Write(data)
}

// controlModule makes the attempts without confinement.
func controlModule(t *testing.T, module []byte, secret string) {
	t.Helper()
	dir := t.TempDir()
	place(t, dir, module, secret)
	tmp := t.TempDir()
	guest := t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(guest, "crannog-guest"): "guest", filepath.Join(dir, "maps"): "maps", filepath.Join(dir, "secret"): attempts.SecretText,
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCloseOnContextDone(true))
	defer r.Close(context.Background())
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	compiled, err := r.CompileModule(ctx, module)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range moduleAttempts {
		for _, name := range c.names {
			ctx, cancel := context.WithCancel(hosttest.Context(t))
			out := output{looping: cancel}
			files := wazero.NewFSConfig().WithReadOnlyDirMount("/", "/").WithDirMount(dir, "/workspace").WithDirMount(tmp, "/tmp").WithDirMount(guest, "/.crannog")
			config := wazero.NewModuleConfig().WithName("").WithArgs("module", name, secret).WithEnv("CONTROL", "1").WithEnv("PWD", "/workspace").
				WithStdout(&out).WithStderr(&out).WithFSConfig(files).WithSysNanotime().WithSysWalltime()
			if slices.Contains(refusedByText, name) {
				config = config.WithEnv("INSIDE", "1")
			}
			_, err := r.InstantiateModule(ctx, compiled, config)
			cancel()
			exit, ok := errors.AsType[*sys.ExitError](err)
			succeeded := strings.HasPrefix(out.String(), "escaped") || name == "endless-loop" && ok && exit.ExitCode() == sys.ExitCodeContextCanceled
			if !succeeded {
				t.Errorf("control: %s does not succeed without confinement (%s, %v), so that its refusal inside proves nothing", name, out.String(), err)
			}
		}
	}
}
