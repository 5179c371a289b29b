package causeway_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// P84: a WebAssembly module that an ordinary compiler built reaches the hosts that the policy
// allows, with the secret that the gateway injects and that the module never sees. Its other
// requests are refused with the reason, and all of them are recorded.
func TestWebAssemblyModulesUseTheGateway(t *testing.T) {
	if !hosttest.Full() {
		t.Skip("building and compiling a module with net/http takes half a minute; make test-wasm runs this, and make test runs TestRequests of the engine wasm")
	}
	need(t, hosttest.Root)
	t.Parallel()
	module := filepath.Join(t.TempDir(), "prog.wasm")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", module, "./testdata/wasm")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	code, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	a := sharedEnvironment(t)
	bound, plain := a.web(t, 443, serveReflection, "api.s20.test"), a.web(t, 80, nil, "plain.s20.test")
	a.storeSecret(t, "S20", canary)
	sb, err := a.client.Create(t.Context(), crannog.Engine("wasm"), crannog.Timeout(5*time.Hour), crannog.Limits(small), crannog.Policy(`policy: v1
name: task
level: light
network:
  unlisted: deny
  hosts:
    - {host: api.s20.test, rules: [{paths: ["/**"], methods: [POST], do: allow}]}
    - {host: plain.s20.test, ports: [80], rules: [{paths: ["/open"], methods: [POST], do: allow}]}
secrets: {bind: [{name: S20, host: api.s20.test, header: Authorization, format: "Bearer {}"}]}
`))
	if err != nil {
		t.Fatalf("create a sandbox: %v\n%s", err, a.logs())
	}
	b := &testSandbox{Sandbox: sb, t: t, environment: a}
	t.Cleanup(b.end)
	if err := sb.FS().WithContext(t.Context()).WriteFile("home/user/prog.wasm", code, 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(urls ...string) []string {
		t.Helper()
		r, err := b.Exec(t.Context(), api.Exec{Cmd: append([]string{"/home/user/prog.wasm"}, urls...)})
		if err != nil || r.ExitCode != 0 {
			t.Fatalf("run the module: %+v, %v", r, err)
		}
		return strings.Split(strings.TrimSpace(r.Stdout), "\n")
	}
	got := run("https://api.s20.test/raw", "https://api.s20.test/header", "http://plain.s20.test/open", "http://plain.s20.test/closed", "https://other.s20.test/", "http://other.s20.test/", "https://93.184.216.34/")
	for i, want := range [][]string{
		{"200 OK", "you sent Bearer ****"},
		{"200 OK", "X-Sent:[Bearer [redacted:S20]]"},
		{"200 OK"},
		{"403 Forbidden", "crannog: blocked POST http://plain.s20.test/closed", "rule=host:plain.s20.test"},
		{"403 Forbidden", "crannog: blocked CONNECT other.s20.test:443", "rule=network.unlisted"},
		{"403 Forbidden", "crannog: blocked POST", "rule=network.unlisted"},
		{"403 Forbidden", "crannog: blocked CONNECT"},
		{"S20=sealed-by-crannog-S20"},
	} {
		if i >= len(got) || !contains(got[i], want...) {
			t.Fatalf("line %d of the module's output has not all of %q:\n%s\n%s", i, want, strings.Join(got, "\n"), a.logs())
		}
	}
	if all := strings.Join(got, "\n"); contains(all, canary[:8]) {
		t.Errorf("the module has seen the secret: %s", all)
	}
	if len(bound.seen()) != 2 || bound.seen()[0].auth() != "Bearer "+canary {
		t.Errorf("control: the server has not got the secret: %+v", bound.seen())
	}
	if len(plain.seen()) != 1 {
		t.Errorf("the server got %d requests, want only the allowed one", len(plain.seen()))
	}
	effects := map[string]int{}
	for _, r := range b.records() {
		effects[r.Host+" "+r.Effect]++
	}
	for entry, n := range map[string]int{"api.s20.test allow": 2, "plain.s20.test allow": 1, "plain.s20.test deny": 1, "other.s20.test deny": 2, "93.184.216.34 deny": 1} {
		if effects[entry] < n {
			t.Errorf("the network log has %d entries %q, want %d: %v", effects[entry], entry, n, effects)
		}
	}
}
