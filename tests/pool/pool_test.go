// Package pool_test acquires warm sandboxes with loaded languages from the installed program: what
// was loaded is present, nothing else is, and no two of them draw the same random values.
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

// python is a program that sandboxes see: their PATH may not be the test's.
const python = "/usr/bin/python3"

var libraries = hosttest.Requirement{Name: "numpy, pandas and matplotlib for " + python, Has: func() bool {
	return exec.Command(python, "-c", "import numpy, pandas, matplotlib").Run() == nil
}}

// server is a server with a pool and a log about it.
type server struct {
	*servetest.Server
	t      *testing.T
	client *crannog.Client
}

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

var waits = regexp.MustCompile(`msg="sandbox waits" sandbox=(\S+) kind="?` + template + `.* restored=(true|false)`)

// waiting maps the sandboxes of the template that were warm so far to whether they were restored
// from a saved state.
func (s *server) waiting() map[string]string {
	all := map[string]string{}
	for _, m := range waits.FindAllStringSubmatch(s.Stderr(), -1) {
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

// claim creates a sandbox when that many were warm, and fails the test if it is not one of them, or
// if restored is not as expected.
func (s *server) claim(n int, restored bool) *crannog.Sandbox {
	s.t.Helper()
	hosttest.EventuallyNoError(s.t, func() error {
		if have := len(s.waiting()); have < n {
			return fmt.Errorf("%d sandboxes were warm, want %d", have, n)
		}
		return nil
	})
	sb := s.create()
	if got := s.waiting()[sb.ID()]; got != fmt.Sprint(restored) {
		s.t.Fatalf("the log of %s says restored=%q, want %t", sb.ID(), got, restored)
	}
	log, err := sb.Logs(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	if text, err := json.Marshal(log); err != nil || !strings.Contains(string(text), `"from":"pool"`) {
		s.t.Errorf("its own log does not say that it was warm: %s", text)
	}
	return sb
}

// run runs code as the first in a default context, and returns its output.
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
		s.t.Errorf("the first code of %s is number %d", language, count)
	}
	return strings.TrimSpace(out)
}

// looks prints what a first cell finds before it imports anything but sys, and then random values,
// one per line, from every generator that a worker may have.
const looks = `import sys
print([m for m in ("numpy", "pandas", "matplotlib.pyplot") if m in sys.modules], sorted(globals()), sys.argv, __name__)
import os, random, secrets, ssl, tempfile, uuid, numpy
for drawn in (random.random(), random.Random().random(), numpy.random.random(), numpy.random.default_rng().random(), numpy.random.RandomState().random_sample(),
              os.urandom(8).hex(), secrets.token_hex(8), uuid.uuid4(), ssl.RAND_bytes(8).hex()):
    print(drawn)`

// differ fails the test if two sandboxes drew the same value.
func differ(t *testing.T, what string, sandboxes ...[]string) {
	t.Helper()
	seen := map[string]bool{}
	for _, drawn := range sandboxes {
		if len(drawn) < 2 {
			t.Errorf("%s: drew %q", what, drawn)
		}
		for i, one := range drawn {
			if seen[one] {
				t.Errorf("%s: draw %d is another's: %q", what, i, one)
			}
			seen[one] = true
		}
	}
}

// Sandboxes of the interpreter's template are restored from one that had loaded its libraries. A
// first cell finds those and nothing else that it would not find in a sandbox of its own, and none
// draws the same values as another (P26).
func TestRestoredWithLibraries(t *testing.T) {
	hosttest.Need(t, hosttest.Root, libraries)
	s, plain := start(t, "--pool", "1g"), start(t)
	one, two := s.claim(1, true), s.claim(2, true)
	if said := s.Stderr(); !strings.Contains(said, `msg="template snapshot created"`) || strings.Contains(said, "with loaded languages are booted") {
		t.Error("no saved state was made, or it was given up")
	}
	var drawn [][]string
	state := map[string]string{}
	for name, sb := range map[string]*crannog.Sandbox{"one": one, "two": two} {
		first, rest, _ := strings.Cut(s.run(sb, "python", looks), "\n")
		state[name] = first
		drawn = append(drawn, strings.Fields(rest))
	}
	differ(t, "python", drawn...)
	// Control: nothing is loaded in a new sandbox.
	control, _, _ := strings.Cut(plain.run(plain.create(), "python", looks), "\n")
	const loaded = "['numpy', 'pandas', 'matplotlib.pyplot'] "
	if !strings.HasPrefix(control, "[] ") || state["one"] != loaded+control[len("[] "):] || state["one"] != state["two"] {
		t.Errorf("found by first cells: %q in a new sandbox, %q", control, state)
	}
}

// draws prints random values from V8's generators and OpenSSL's, which no copy of a process can
// start again.
const draws = `const c = require("crypto"), { Worker } = require("worker_threads");
const web = await crypto.subtle.exportKey("raw", await crypto.subtle.generateKey({ name: "AES-GCM", length: 128 }, true, ["encrypt"]));
const inWorker = 'const c = require("crypto"); require("worker_threads").parentPort.postMessage([Math.random(), c.generateKeySync("hmac", {length: 128}).export().toString("hex")])';
const all = [Math.random(), c.randomUUID(), c.randomBytes(8).toString("hex"), crypto.getRandomValues(new Uint8Array(8)).join("."),
  c.generateKeySync("hmac", { length: 128 }).export().toString("hex"), c.createECDH("prime256v1").generateKeys("hex"),
  c.generateKeyPairSync("ed25519").publicKey.export({ type: "spki", format: "der" }).toString("hex"), Buffer.from(web).toString("hex"),
  require("vm").runInNewContext("Math.random()"),
  ...(await new Promise((done) => new Worker(inWorker, { eval: true }).on("message", done)))];
console.log(all.join("\n"))`

// age prints for how many milliseconds a worker has run, and since when.
const age = `console.log(Date.now() - process.uptime() * 1000)`

// Each sandbox loads JavaScript itself, even a restored one: no two of them draw the same values
// (P26).
func TestJavaScriptIsLoaded(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Node, libraries)
	for name, restored := range map[string]bool{"beside Python": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			languages := "javascript"
			if restored {
				languages = "python,javascript"
			}
			s := start(t, "--pool", "1g", "--pool-languages", languages)
			var drawn [][]string
			for n := range 2 {
				sb := s.claim(n+1, restored)
				claimed := time.Now()
				began, err := strconv.ParseFloat(s.run(sb, "javascript", age), 64)
				if err != nil || began > float64(claimed.UnixMilli()) {
					t.Errorf("the worker began at %f, the sandbox was handed over at %d: %v", began, claimed.UnixMilli(), err)
				}
				var out strings.Builder
				for e, err := range sb.RunCode(t.Context(), draws, crannog.Language("javascript")) {
					if err != nil || e.Type == "error" {
						t.Fatalf("%v %s %s", err, e.Value, e.Traceback)
					}
					if e.Type == "stdout" {
						out.WriteString(e.Text)
					}
				}
				drawn = append(drawn, strings.Fields(out.String()))
			}
			differ(t, "javascript", drawn...)
		})
	}
}

// Control: if JavaScript is not preloaded, its worker starts on demand.
func TestJavaScriptIsNotLoaded(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Node)
	s := start(t, "--pool", "1g", "--pool-languages", "none")
	sb := s.claim(1, false)
	claimed := time.Now()
	if began, err := strconv.ParseFloat(s.run(sb, "javascript", age), 64); err != nil || began < float64(claimed.UnixMilli()) {
		t.Errorf("the worker began at %f, the sandbox was handed over at %d: %v", began, claimed.UnixMilli(), err)
	}
}
