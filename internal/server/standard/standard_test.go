package standard_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/server/standard"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestMain(m *testing.M) {
	crannog.Main()
	os.Exit(m.Run())
}

// A Go program runs sandboxes without a server. No sandbox process outlives the client.
func TestLocal(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python, hosttest.Bash)
	state := hosttest.ShortDir(t)
	client, err := crannog.Local(t.Context(), crannog.State(state))
	if err != nil {
		t.Fatal(err)
	}
	useSandbox(t, client)
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if left := sandboxProcesses(t, state); len(left) > 0 {
		t.Errorf("sandbox processes after Close: %s", left)
	}
}

// Local applies the organisation's policy and the other settings, although there is no server.
func TestLocalAppliesSettings(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	state, dir := hosttest.ShortDir(t), t.TempDir()
	org, conf := filepath.Join(dir, "org.yaml"), filepath.Join(dir, "config.toml")
	for path, text := range map[string]string{
		org:  "policy: v1\nlevel: light\nnetwork: {unlisted: deny}\n",
		conf: "organisation_policy = \"" + org + "\"\nmax_live = 1\nstate = \"" + state + "\"\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, opts := range map[string][]crannog.LocalOption{
		"a file": {crannog.FromConfig(conf)},
		"a text": {crannog.State(state), crannog.OrganisationPolicy("policy: v1\nlevel: light\nnetwork: {unlisted: deny}\n")},
	} {
		client, err := crannog.Local(t.Context(), opts...)
		if err != nil {
			t.Fatal(err)
		}
		sb, err := client.Create(t.Context(), crannog.Ephemeral(), crannog.Access(api.Access{Level: "minimal", Net: "open"}))
		if err != nil {
			t.Fatal(err)
		}
		p, err := sb.Policy(t.Context())
		if err != nil || p.Level != "light" || !strings.Contains(p.Document, "unlisted: deny") {
			t.Errorf("%s: got the policy level %s (%v), want light with unlisted: deny\n%s", name, p.Level, err, p.Document)
		}
		_, err = client.Create(t.Context(), crannog.Ephemeral())
		if limited := name == "a file"; errors.Is(err, crannog.ErrExhausted) != limited || !limited && err != nil {
			t.Errorf("%s: second sandbox: got %v, want an error only with max_live", name, err)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
}

// useSandbox checks commands, files and code in a sandbox.
func useSandbox(t *testing.T, client *crannog.Client) {
	t.Helper()
	sb, err := client.Create(t.Context(), crannog.Ephemeral())
	if err != nil {
		t.Fatal(err)
	}
	if info := sb.Info(); info.Boundary != "userspace-kernel" || len(info.Effective.Enforced) < 4 {
		t.Errorf("sandbox: got %+v", info)
	}
	out, err := sb.CommandContext(t.Context(), "bash", "-lc", "id -un; echo $0").Output()
	if err != nil || string(out) != "user\nbash\n" {
		t.Errorf("id: got %q (%v), want user and bash", out, err)
	}
	files := sb.FS().WithContext(t.Context())
	if err := files.WriteFile("home/user/tool", []byte("#!/bin/sh\necho ran\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := sb.CommandContext(t.Context(), "/home/user/tool").Output(); err != nil || string(out) != "ran\n" {
		t.Errorf("tool: got %q (%v), want ran", out, err)
	}
	if _, err := files.ReadFile("etc/shadow"); err == nil {
		t.Error("the sandbox can read the host's /etc/shadow")
	}
	if _, err := files.Stat("root/.ssh"); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, crannog.ErrDenied) {
		t.Errorf("root's .ssh: got %v, want an error", err)
	}
	var results []string
	for event, err := range sb.RunCode(t.Context(), "6*7") {
		if err != nil {
			t.Fatal(err)
		}
		if event.Type == "result" {
			results = append(results, event.Text)
		}
	}
	if !slices.Equal(results, []string{"42"}) {
		t.Errorf("RunCode: got the results %q, want 42", results)
	}
}

// sandboxProcesses returns the command lines of sandbox processes of a state directory. It waits
// until there are none, or the deadline has passed.
func sandboxProcesses(t *testing.T, state string) []string {
	t.Helper()
	for deadline := hosttest.Deadline(); ; time.Sleep(20 * time.Millisecond) {
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, f := range files {
			if line, err := os.ReadFile(f); err == nil && strings.Contains(string(line), state+"/run/") {
				found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
		if len(found) == 0 || time.Now().After(deadline) {
			return found
		}
	}
}

// Wrong settings end the start of a server. None of them is left out, because a registry that is
// allowed by mistake is a way in.
func TestOpenRejectsWrongImageSettings(t *testing.T) {
	for name, images := range map[string]standard.Images{
		"registries": {Registries: "not a registry!"},
		"insecure":   {Insecure: "not a registry!"},
		"mirrors":    {Mirrors: "without-an-equals-sign"},
	} {
		s, err := standard.Open(t.Context(), standard.Options{State: hosttest.ShortDir(t), Log: slog.New(slog.DiscardHandler), DefaultEngine: "gvisor", Images: images})
		if err == nil {
			t.Errorf("%s: got a server, want an error", name)
			_ = s.Close(t.Context()) // the test has failed
		}
	}
}

// The engines of this program are created also without a server, to tell what the machine supports.
func TestEnginesAreCreatedWithoutServer(t *testing.T) {
	registry, err := standard.Engines(standard.Options{State: hosttest.ShortDir(t), Log: slog.New(slog.DiscardHandler), DefaultEngine: "gvisor"})
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(slices.Values(registry.Names()))
	if want := []string{"docker", "gvisor", "jail", "microvm", "wasm"}; !slices.Equal(names, want) {
		t.Errorf("got the engines %v, want %v", names, want)
	}
	for name, o := range map[string]standard.Options{
		"an unknown default": {State: hosttest.ShortDir(t), DefaultEngine: "none"},
		"a file as state":    {State: "/proc/version", DefaultEngine: "gvisor"},
	} {
		o.Log = slog.New(slog.DiscardHandler)
		if _, err := standard.Engines(o); err == nil {
			t.Errorf("%s: got engines, want an error", name)
		}
	}
}
