// Package pool_test acquires warm sandboxes with loaded languages from the real program. The loaded
// libraries are present and nothing else is, and no two sandboxes draw the same random values.
package pool_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

var program string

func TestMain(m *testing.M) { os.Exit(servetest.Main(m, &program)) }

const template = "code-interpreter-v1"

// python is a path that sandboxes see: their PATH may differ from the test's.
const python = "/usr/bin/python3"

var libraries = hosttest.Requirement{Name: "numpy, pandas and matplotlib for " + python, Has: func() bool {
	return exec.Command(python, "-c", "import numpy, pandas, matplotlib").Run() == nil
}}

// server is a server with a pool, which logs its warm sandboxes.
type server struct {
	*servetest.Server
	t      *testing.T
	client *crannog.Client
}

// start starts a server until the test ends.
func start(t *testing.T, flags ...string) *server {
	t.Helper()
	s := &server{Server: servetest.Start(t, program, t.TempDir(), append([]string{"--verbose"}, flags...)...), t: t}
	s.client = s.Client(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Stderr())
		}
	})
	return s
}

// warmLog matches the log entry of a sandbox that became warm.
var warmLog = regexp.MustCompile(`msg="sandbox waits" sandbox=(\S+) kind="?` + template + `.* restored=(true|false)`)

// warmSandboxes maps the sandboxes of the template that were warm so far to whether they were
// restored from a saved state.
func (s *server) warmSandboxes() map[string]string {
	all := map[string]string{}
	for _, m := range warmLog.FindAllStringSubmatch(s.Stderr(), -1) {
		all[m[1]] = m[2]
	}
	return all
}

// create creates a sandbox like the E2B clients.
func (s *server) create() *crannog.Sandbox {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.URL+"/sandboxes", strings.NewReader(`{"templateID":"`+template+`"}`))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("X-API-Key", s.Key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var made struct{ SandboxID string }
	if err := json.NewDecoder(resp.Body).Decode(&made); err != nil || resp.StatusCode != http.StatusCreated {
		s.t.Fatalf("create: %s, %v", resp.Status, err)
	}
	sb, err := s.client.Get(s.t.Context(), made.SandboxID)
	if err != nil {
		s.t.Fatal(err)
	}
	return sb
}

// acquire creates a sandbox once n were warm. It fails the test if the sandbox is not one of them,
// or if restored differs.
func (s *server) acquire(n int, restored bool) *crannog.Sandbox {
	s.t.Helper()
	hosttest.EventuallyNoError(s.t, func() error {
		if have := len(s.warmSandboxes()); have < n {
			return fmt.Errorf("%d sandboxes were warm, want %d", have, n)
		}
		return nil
	})
	sb := s.create()
	if got := s.warmSandboxes()[sb.ID()]; got != fmt.Sprint(restored) {
		s.t.Fatalf("the log of %s says restored=%q, want %t", sb.ID(), got, restored)
	}
	log, err := sb.Logs(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	if text, err := json.Marshal(log); err != nil || !strings.Contains(string(text), `"from":"pool"`) {
		s.t.Errorf("the sandbox's log does not say that it comes from the pool: %s", text)
	}
	return sb
}

// run runs the first code in a default context, and returns its output.
func (s *server) run(sb *crannog.Sandbox, language, code string) (out string) {
	s.t.Helper()
	count := 0
	for e, err := range sb.RunCode(s.t.Context(), code, crannog.Language(language)) {
		switch {
		case err != nil:
			s.t.Fatal(err)
		case e.Type == "error":
			s.t.Fatalf("%s: %s\n%s", e.Name, e.Value, e.Traceback)
		case e.Type == "number_of_executions":
			count = e.Count
		case e.Type == "stdout":
			out += e.Text
		}
	}
	if count != 1 {
		s.t.Errorf("the first code of %s has number %d, want 1", language, count)
	}
	return strings.TrimSpace(out)
}

// firstCell prints the modules and variables that a first cell finds, and then random values of
// every generator of a worker, one per line.
const firstCell = `import sys
print([m for m in ("numpy", "pandas", "matplotlib.pyplot") if m in sys.modules], sorted(globals()), sys.argv, __name__)
import os, random, secrets, ssl, tempfile, uuid, numpy
for drawn in (random.random(), random.Random().random(), numpy.random.random(), numpy.random.default_rng().random(), numpy.random.RandomState().random_sample(),
              os.urandom(8).hex(), secrets.token_hex(8), uuid.uuid4(), ssl.RAND_bytes(8).hex()):
    print(drawn)`

// requireDifferent fails the test if two sandboxes drew the same value.
func requireDifferent(t *testing.T, what string, sandboxes ...[]string) {
	t.Helper()
	seen := map[string]bool{}
	for _, values := range sandboxes {
		if len(values) < 2 {
			t.Errorf("%s: got the random values %q, want at least 2", what, values)
		}
		for i, one := range values {
			if seen[one] {
				t.Errorf("%s: random value %d was drawn before: %q", what, i, one)
			}
			seen[one] = true
		}
	}
}

// TestRestoredWithLibraries checks that sandboxes of the interpreter's template are restored with
// loaded libraries. A first cell finds those and nothing else that a new sandbox lacks, and no two
// sandboxes draw the same values (P26).
func TestRestoredWithLibraries(t *testing.T) {
	hosttest.Need(t, hosttest.Root, libraries)
	s, plain := start(t, "--pool", "1g"), start(t)
	one, two := s.acquire(1, true), s.acquire(2, true)
	if log := s.Stderr(); !strings.Contains(log, `msg="template snapshot created"`) || strings.Contains(log, "with loaded languages are booted") {
		t.Error("the server saved no template snapshot, or stopped using it")
	}
	var values [][]string
	state := map[string]string{}
	for name, sb := range map[string]*crannog.Sandbox{"one": one, "two": two} {
		first, rest, _ := strings.Cut(s.run(sb, "python", firstCell), "\n")
		state[name] = first
		values = append(values, strings.Fields(rest))
	}
	requireDifferent(t, "python", values...)
	// Control: nothing is loaded in a new sandbox.
	control, _, _ := strings.Cut(plain.run(plain.create(), "python", firstCell), "\n")
	const loaded = "['numpy', 'pandas', 'matplotlib.pyplot'] "
	if !strings.HasPrefix(control, "[] ") || state["one"] != loaded+control[len("[] "):] || state["one"] != state["two"] {
		t.Errorf("first cells found %q in a new sandbox and %q in warm ones", control, state)
	}
}

// randomValues prints values from the generators of V8 and OpenSSL, which a copy of a process
// cannot seed again.
const randomValues = `const c = require("crypto"), { Worker } = require("worker_threads");
const web = await crypto.subtle.exportKey("raw", await crypto.subtle.generateKey({ name: "AES-GCM", length: 128 }, true, ["encrypt"]));
const inWorker = 'const c = require("crypto"); require("worker_threads").parentPort.postMessage([Math.random(), c.generateKeySync("hmac", {length: 128}).export().toString("hex")])';
const all = [Math.random(), c.randomUUID(), c.randomBytes(8).toString("hex"), crypto.getRandomValues(new Uint8Array(8)).join("."),
  c.generateKeySync("hmac", { length: 128 }).export().toString("hex"), c.createECDH("prime256v1").generateKeys("hex"),
  c.generateKeyPairSync("ed25519").publicKey.export({ type: "spki", format: "der" }).toString("hex"), Buffer.from(web).toString("hex"),
  require("vm").runInNewContext("Math.random()"),
  ...(await new Promise((done) => new Worker(inWorker, { eval: true }).on("message", done)))];
console.log(all.join("\n"))`

// workerStart prints when a worker started, in milliseconds since 1970.
const workerStart = `console.log(Date.now() - process.uptime() * 1000)`

// TestJavaScriptIsLoaded checks that each sandbox loads JavaScript itself, even a restored one, so
// that no two of them draw the same values (P26).
func TestJavaScriptIsLoaded(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Node, libraries)
	for name, restored := range map[string]bool{"with Python": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			languages := "javascript"
			if restored {
				languages = "python,javascript"
			}
			s := start(t, "--pool", "1g", "--pool-languages", languages)
			var values [][]string
			for n := range 2 {
				sb := s.acquire(n+1, restored)
				acquiredAt := time.Now()
				startedAt, err := strconv.ParseFloat(s.run(sb, "javascript", workerStart), 64)
				if err != nil || startedAt > float64(acquiredAt.UnixMilli()) {
					t.Errorf("the worker started at %f, the sandbox was acquired at %d: %v", startedAt, acquiredAt.UnixMilli(), err)
				}
				var out strings.Builder
				for e, err := range sb.RunCode(t.Context(), randomValues, crannog.Language("javascript")) {
					if err != nil || e.Type == "error" {
						t.Fatalf("draw random values: %v %s %s", err, e.Value, e.Traceback)
					}
					if e.Type == "stdout" {
						out.WriteString(e.Text)
					}
				}
				values = append(values, strings.Fields(out.String()))
			}
			requireDifferent(t, "javascript", values...)
		})
	}
}

// TestJavaScriptIsNotLoaded is the control: if JavaScript is not preloaded, its worker starts on
// demand.
func TestJavaScriptIsNotLoaded(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Node)
	s := start(t, "--pool", "1g", "--pool-languages", "none")
	sb := s.acquire(1, false)
	acquiredAt := time.Now()
	if startedAt, err := strconv.ParseFloat(s.run(sb, "javascript", workerStart), 64); err != nil || startedAt < float64(acquiredAt.UnixMilli()) {
		t.Errorf("the worker started at %f, the sandbox was acquired at %d: %v", startedAt, acquiredAt.UnixMilli(), err)
	}
}
