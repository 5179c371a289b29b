package causeway_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// environment is the product on a state directory with a fake internet of its own.
type environment struct {
	*internet
	state  string
	client *crannog.Client
	// kernels is set if sandboxes are made without an engine.
	kernels *kernels
}

// environments are shared by most tests, one after the other, because state that passes from test
// to test would be a leak too. Tests that run at the same time have different ones, so that a test
// may count requests to its fake internet.
var environments struct {
	mu   sync.Mutex
	all  []*environment
	idle []*environment
}

// sharedEnvironment returns an environment that no other test uses until this one ends.
func sharedEnvironment(t testing.TB) *environment {
	t.Helper()
	environments.mu.Lock()
	defer environments.mu.Unlock()
	if len(environments.idle) == 0 {
		a, err := createEnvironment()
		if err != nil {
			t.Fatal(err)
		}
		environments.all, environments.idle = append(environments.all, a), append(environments.idle, a)
	}
	last := len(environments.idle) - 1
	a := environments.idle[last]
	environments.idle = environments.idle[:last]
	t.Cleanup(func() { // runs last, since it is the test's first cleanup
		if t.Failed() {
			t.Log(errorsLogged(a.state))
		}
		environments.mu.Lock()
		defer environments.mu.Unlock()
		environments.idle = append(environments.idle, a)
	})
	return a
}

// createEnvironment makes an environment that ends with the test program.
func createEnvironment() (*environment, error) {
	w, err := newInternet()
	if err != nil {
		return nil, err
	}
	a := &environment{internet: w}
	if a.state, err = os.MkdirTemp("", "cw"); err != nil {
		return nil, err
	}
	if err := w.write(a.state); err != nil {
		return nil, err
	}
	a.client, err = crannog.Local(noContext(), localOptions(a.state)...)
	return a, err
}

// ownEnvironment returns an environment for a test that ends its gateway, or observes it from its
// start.
func ownEnvironment(t testing.TB) *environment {
	t.Helper()
	w, err := newInternet()
	if err != nil {
		t.Fatal(err)
	}
	a := &environment{internet: w, state: hosttest.ShortDir(t)}
	a.client = local(t, a.state, w)
	t.Cleanup(func() {
		if err := errors.Join(a.client.Close(), awaitCauseway(a.state)); err != nil {
			t.Error(err)
		}
	})
	return a
}

// closeShared closes the shared environments and checks that their gateways end.
func closeShared() (err error) {
	for _, a := range environments.all {
		err = errors.Join(err, a.client.Close())
	}
	for _, a := range environments.all {
		err = errors.Join(err, awaitCauseway(a.state), os.RemoveAll(a.state))
	}
	return err
}

// testSandbox is a sandbox with a hostile program inside. Either Sandbox or kernel is set.
type testSandbox struct {
	*crannog.Sandbox
	t           testing.TB
	environment *environment
	kernel      *kernelPeer
}

// end removes the sandbox, once.
func (b *testSandbox) end() {
	if b.Sandbox == nil {
		return
	}
	ctx, cancel := context.WithTimeout(noContext(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	if err := b.Kill(ctx); err != nil {
		b.t.Error(err)
	}
	b.Sandbox = nil
}

// withJailLevel adds a level that accepts jails to the text of a policy, if sandboxes are jails.
func withJailLevel(document string) string {
	if os.Getenv(engineVariable) != "jail" || contains(document, "level:") {
		return document
	}
	return "level: light\n" + document
}

// proxied reports whether sandboxes have no network interface.
func proxied() bool { return os.Getenv(attachmentVariable) == "proxy" }

// proxyURL returns the address of the gateway's proxy in sandboxes.
func proxyURL() string {
	if proxied() {
		return "http://127.0.0.53:3128"
	}
	return "http://10.199.0.1:3128"
}

// localOptions returns the options of the product on a state directory.
func localOptions(state string) []crannog.LocalOption {
	options := []crannog.LocalOption{crannog.State(state), crannog.Logger(logTo(state))}
	if proxied() {
		options = append(options, crannog.FromConfig(""))
	}
	return options
}

// insideTools returns the Python tools for programs in sandboxes.
func insideTools() string {
	if !proxied() {
		return tools
	}
	return strings.Replace(tools, "GATEWAY = '10.199.0.1'", "GATEWAY = '127.0.0.53'", 1) + connectThroughProxy
}

// small are the limits of a test's sandbox.
var small = api.Limits{MemoryBytes: 512 << 20, CPUMillis: 2000, PIDs: 256, DiskBytes: 256 << 20, CommandTimeoutSeconds: 1200}

// newSandbox creates a sandbox under a policy document. It ends with the test.
func (a *environment) newSandbox(t testing.TB, document string, options ...crannog.CreateOption) *testSandbox {
	t.Helper()
	if contains(document, "secrets:") && !contains(document, "level:") {
		// The default level needs an approval for the first use of each secret. Only TestS8 and the
		// tests of approvals are about that.
		document = "level: light\n" + document
	}
	if a.kernels != nil {
		if len(options) > 0 {
			t.Fatal("a sandbox without an engine has no options")
		}
		return a.kernelPeer(t, document)
	}
	if document = withJailLevel(document); document != "" {
		options = append(options, crannog.Policy("policy: v1\nname: task\n"+document))
	}
	return a.testSandboxWith(t, options...)
}

func (a *environment) testSandboxWith(t testing.TB, options ...crannog.CreateOption) *testSandbox {
	t.Helper()
	options = append(options, crannog.Engine(os.Getenv(engineVariable)))
	sb, err := a.client.Create(t.Context(), append([]crannog.CreateOption{crannog.Timeout(5 * time.Hour), crannog.Limits(small)}, options...)...)
	if err != nil {
		t.Fatalf("create a sandbox: %v\n%s", err, a.logs())
	}
	b := &testSandbox{Sandbox: sb, t: t, environment: a}
	t.Cleanup(b.end)
	files := sb.FS().WithContext(t.Context())
	for name, text := range map[string]string{"tmp/tools.py": fmt.Sprintf("SLOWNESS = %f\n", hosttest.Slowness()) + insideTools(), "tmp/world.pem": string(a.Roots)} {
		if err := files.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// logs returns the log of the product and its gateway.
func (a *environment) logs() string {
	var all strings.Builder
	for _, name := range []string{"test.log", "causeway/log"} {
		data, _ := os.ReadFile(filepath.Join(a.state, name))
		all.Write(data)
	}
	return all.String()
}

func logTo(state string) *slog.Logger {
	f, err := os.OpenFile(filepath.Join(state, "test.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// errorsLogged returns the errors in the log of an environment: an answer to a caller does not have
// the cause of an internal error.
func errorsLogged(state string) string {
	data, err := os.ReadFile(filepath.Join(state, "test.log"))
	if err != nil {
		return err.Error()
	}
	var found strings.Builder
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, "level=ERROR") {
			found.WriteString(line)
		}
	}
	return "errors in the log of the environment, also of earlier tests:\n" + found.String()
}

// sh runs a shell line and returns its output and exit code.
func (b *testSandbox) sh(line string) (string, int) {
	b.t.Helper()
	return b.exec("", "", "sh", "-c", line)
}

// exec runs a program within the sandbox's time limit.
func (b *testSandbox) exec(user, stdin string, cmd ...string) (string, int) {
	b.t.Helper()
	if b.kernel != nil {
		return b.kernel.exec(b.t, b.environment.kernels.form, stdin, cmd...)
	}
	res, err := b.Exec(b.t.Context(), api.Exec{Cmd: cmd, User: user, Stdin: stdin})
	if err != nil {
		b.t.Fatalf("run %.200q: %v", cmd, err)
	}
	return strings.TrimSpace(res.Stdout + res.Stderr), res.ExitCode
}

// must runs a shell line that must succeed.
func (b *testSandbox) must(line string) string {
	b.t.Helper()
	out, code := b.sh(line)
	if code != 0 {
		b.t.Fatalf("%s: exit %d: %s", line, code, out)
	}
	return out
}

// python runs a program with the tools module and returns its lines of output.
func (b *testSandbox) python(text string) []string {
	b.t.Helper()
	return b.pythonAs("", text)
}

func (b *testSandbox) pythonAs(user, text string) []string {
	b.t.Helper()
	out, code := b.exec(user, "import sys\nsys.path.insert(0, '/tmp')\nfrom tools import *\n"+text, "python3", "-")
	if code != 0 {
		b.t.Fatalf("run a Python program: exit %d: %s", code, out)
	}
	return strings.Split(out, "\n")
}

// line runs a program that prints one line.
func (b *testSandbox) line(text string) string {
	b.t.Helper()
	return strings.Join(b.python(text), "\n")
}

// requireLines compares lines of output with patterns. A pattern that ends in * is a prefix; others
// are the whole line.
func (b *testSandbox) requireLines(got []string, want ...string) {
	b.t.Helper()
	if len(got) != len(want) {
		b.t.Errorf("got %d lines, want %d: %q", len(got), len(want), got)
		return
	}
	for i, w := range want {
		if prefix, ok := strings.CutSuffix(w, "*"); ok && strings.HasPrefix(got[i], prefix) || got[i] == w {
			continue
		}
		b.t.Errorf("line %d: got %q, want %q", i+1, got[i], w)
	}
}

// records returns the sandbox's flow entries. Of two entries with one number it returns the later.
func (b *testSandbox) records(kinds ...string) []api.FlowRecord {
	b.t.Helper()
	var list []api.FlowRecord
	each := func(r api.FlowRecord) error {
		if len(kinds) > 0 && !slices.Contains(kinds, r.Kind) {
			return nil
		}
		if i := slices.IndexFunc(list, func(o api.FlowRecord) bool { return o.Seq == r.Seq }); i >= 0 {
			list[i] = r
			return nil
		}
		list = append(list, r)
		return nil
	}
	if b.kernel != nil {
		for _, r := range b.kernel.flows(b.t) {
			_ = each(r)
		}
		return list
	}
	if err := b.Flows(b.t.Context(), crannog.FlowOptions{}, each); err != nil {
		b.t.Fatal(err)
	}
	return list
}

// awaitFlow waits for a flow entry, which may be written after the answer.
func (b *testSandbox) awaitFlow(what string, is func(api.FlowRecord) bool) api.FlowRecord {
	b.t.Helper()
	var found api.FlowRecord
	hosttest.Eventually(b.t, "a flow entry: "+what+"\n"+fmt.Sprint(b.records()), func() bool {
		list := b.records()
		i := slices.IndexFunc(list, is)
		if i >= 0 {
			found = list[i]
		}
		return i >= 0
	})
	return found
}

// contains reports whether a text contains all of some others.
func contains(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

// noContext returns the context for the cleanup of a test, whose own context has ended then.
func noContext() context.Context { return context.Background() }
