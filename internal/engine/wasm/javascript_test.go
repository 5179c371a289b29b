package wasm_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// answer is the answer of an execution.
type answer struct {
	out, err, result string
	name, value      string // of the error that the code threw
	traceback        string
}

// code returns a client of the sandbox's code interpreter.
func (b *testSandbox) code(t testing.TB) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return b.e.Dial(ctx, b.id, guestboot.InterpreterPort)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// post sends a request to the code interpreter.
func post(ctx context.Context, t testing.TB, client *http.Client, path string, body map[string]any) (*http.Response, error) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://guest"+path, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Access-Token", token)
	return client.Do(req)
}

// execute runs code and collects the answer.
func execute(t testing.TB, client *http.Client, body map[string]any) answer {
	t.Helper()
	resp, err := post(t.Context(), t, client, "/execute", body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var a answer
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 32<<20)
	for lines.Scan() {
		var line struct{ Type, Text, Name, Value, Traceback string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		switch line.Type {
		case "stdout":
			a.out += line.Text
		case "stderr":
			a.err += line.Text
		case "result":
			a.result += line.Text
		case "error":
			a.name, a.value, a.traceback = line.Name, line.Value, line.Traceback
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return a
}

// This test covers promise P59. All subtests use one sandbox.
func TestJavaScript(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	binary := copyOfBinary(t)
	workspace := t.TempDir()
	if err := os.Symlink("/proc/self/mem", filepath.Join(workspace, "proc")); err != nil {
		t.Fatal(err)
	}
	e := open(binary, false)(t, t.TempDir())
	b := start(t, e, image(t, sandbox.ModuleTemplate, binary, emptyModule), "javascript", func(s *engine.Spec) {
		s.Workspace, s.Limits.MemoryBytes = workspace, 256<<20
	})
	client := b.code(t)
	js := func(t *testing.T, code string) answer {
		t.Helper()
		return execute(t, client, map[string]any{"code": code, "language": "javascript"})
	}
	t.Run("results and output", func(t *testing.T) { checkResults(t, js) })
	t.Run("errors", func(t *testing.T) { checkErrors(t, js) })
	t.Run("files", func(t *testing.T) { checkFiles(t, js) })
	t.Run("limits", func(t *testing.T) { checkCodeLimits(t, js) })
	t.Run("interrupt", func(t *testing.T) { checkInterrupt(t, client, js) })
	t.Run("contexts", func(t *testing.T) { checkContexts(t, client, js) })
	t.Run("deterministic", func(t *testing.T) { checkDeterministic(t, e, image(t, "wasm-deterministic", binary, emptyModule)) })
}

// checkResults checks values, output, and state that is kept between executions.
func checkResults(t *testing.T, js func(*testing.T, string) answer) {
	for _, c := range []struct{ code, result, out, err string }{
		{"1 + 2", "3", "", ""},
		{"const a = 20; let b = 22", "", "", ""},
		{"const c = a + b; c", "42", "", ""},
		{"let b = 1; class P { constructor() { this.x = 1 } }; new P()", "P { x: 1 }", "", ""},
		{"function twice(n) { return 2 * n }", "", "", ""},
		{"[1, 'two', {three: [3]}, null, undefined, twice(2)]", "[ 1, 'two', { three: [ 3 ] }, null, undefined, 4 ]", "", ""},
		{"console.log('hello %s', 'you', {a: 1}); console.error('no')", "", "hello you { a: 1 }\n", "no\n"},
		{"await new Promise((done) => setTimeout(() => done('later'), 5))", "later", "", ""},
		{"new Map([['k', new Set([1])]])", "Map(1) { 'k' => Set(1) { 1 } }", "", ""},
		{"'ä€😀\\u0000'.length + ' ä€😀'", "5 ä€😀", "", ""},
		{"process.cwd() + ' ' + process.env.HOME", "/home/user /home/user", "", ""},
		{"typeof host + typeof require('node:fs').readFileSync", "undefinedfunction", "", ""},
		{"display({ html: '<b>x</b>', text: 'shown' })", "shown", "", ""},
		{"Promise.reject(new Error('lost')); await new Promise((done) => setTimeout(done)); 1", "1", "", "Uncaught Error: lost\n"},
		{"JSON.stringify('x'.repeat(3e6)).length", "3000002", "", ""},
	} {
		a := js(t, c.code)
		if a.result != c.result || a.out != c.out || a.err != c.err || a.name != "" {
			t.Errorf("%s\n got %+v\nwant %+v", c.code, a, c)
		}
	}
}

// checkErrors checks that errors have their names, texts and places.
func checkErrors(t *testing.T, js func(*testing.T, string) answer) {
	for _, c := range []struct{ code, name, value, trace string }{
		{"null.x", "TypeError", "cannot read property 'x' of null", "<cell"},
		{"function f() { throw new RangeError('far') }\nf()", "RangeError", "far", "at f (<cell"},
		{"await Promise.reject(new SyntaxError('inner'))", "SyntaxError", "inner", "<cell"},
		{"let = = 2", "SyntaxError", "", "<cell"},
		{"throw 'text'", "Uncaught", "text", ""},
		{"require('net')", "Error", "Cannot find module 'net'", ""},
		{"function g() { return g() + 1 }; g()", "RangeError", "Maximum call stack size exceeded", ""},
	} {
		a := js(t, c.code)
		if a.name != c.name || !strings.HasPrefix(a.value, c.value) || !strings.Contains(a.traceback, c.trace) || strings.Contains(a.traceback, "crannog") {
			t.Errorf("%s\n got %+v\nwant %+v", c.code, a, c)
		}
	}
}

// checkFiles checks that code can use the files that every module sees, and no others.
func checkFiles(t *testing.T, js func(*testing.T, string) answer) {
	const prepare = `const fs = require("fs"); fs.mkdirSync("/tmp/d/e", {recursive: true});
fs.writeFileSync("/tmp/d/text", "grüße"); fs.appendFileSync("/tmp/d/text", new Uint8Array([33]));`
	for _, c := range []struct{ code, result string }{
		{prepare + `fs.readFileSync("/tmp/d/text", "utf8")`, "grüße!"},
		{`fs.readFileSync("/tmp/d/text").length`, "8"},
		{`fs.readdirSync("/tmp/d")`, "[ 'e', 'text' ]"},
		{`fs.statSync("/tmp/d/e").isDirectory()`, "true"},
		{`await fs.promises.readFile("/etc/hostname", "latin1") !== ""`, "true"},
		{`fs.rmSync("/tmp/d", {recursive: true}); fs.existsSync("/tmp/d")`, "false"},
	} {
		if a := js(t, c.code); a.result != c.result || a.name != "" {
			t.Errorf("%s\n got %+v\nwant %s", c.code, a, c.result)
		}
	}
	// The last file succeeds, which shows that the others were refused because of their places.
	for path, code := range map[string]string{
		"/proc/self/mem": "ENOENT", "/workspace/proc": "EPERM", "/workspace/../proc/self/maps": "ENOENT",
		"/.crannog/quickjs.wasm": "ENOENT", "/sys/kernel": "ENOENT", "/etc/passwd": "",
	} {
		a := js(t, `try { require("fs").readFileSync("`+path+`"); "" } catch (e) { e.code }`)
		if a.result != code || a.name != "" {
			t.Errorf("reading %s: got %+v, want the code %q", path, a, code)
		}
	}
}

// checkCodeLimits checks that code cannot use more memory than its instance has, and that the
// context can be used afterwards.
func checkCodeLimits(t *testing.T, js func(*testing.T, string) answer) {
	js(t, "var kept = 'kept'")
	a := js(t, "const all = []; for (;;) all.push(new Uint8Array(1 << 20).fill(1))")
	if a.name == "" || !strings.Contains(a.value, "memory") {
		t.Errorf("code that takes all memory: got %+v, want an error", a)
	}
	if !strings.Contains(a.value, "its state is lost") {
		t.Errorf("code that keeps all memory: got %+v, want an error that its state is lost", a)
	}
	if a := js(t, "typeof kept"); a.result != "undefined" || a.name != "" {
		t.Errorf("after code that took all memory: %+v", a)
	}
	// Memory that the code has not kept is free again, and the state stays.
	js(t, "var kept = 'kept'")
	if a := js(t, "(() => { const all = []; for (;;) all.push(new Uint8Array(1 << 20)) })()"); !strings.Contains(a.value, "memory") || strings.Contains(a.value, "lost") {
		t.Errorf("code that takes all memory and does not keep it: %+v", a)
	}
	if a := js(t, "kept"); a.result != "kept" {
		t.Errorf("after code that released its memory: %+v", a)
	}
}

// checkInterrupt checks that code ends when its client is gone, and that the state stays.
func checkInterrupt(t *testing.T, client *http.Client, js func(*testing.T, string) answer) {
	for _, code := range []string{"for (;;);", "await new Promise(() => {})", "setInterval(() => {}, 1); await new Promise(() => {})"} {
		js(t, "var state = 7")
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := post(ctx, t, client, "/execute", map[string]any{"code": "console.log('begun');" + code, "language": "javascript"})
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() && !strings.Contains(lines.Text(), "begun") {
		}
		cancel()
		resp.Body.Close()
		if a := js(t, "state + 1"); a.result != "8" {
			t.Errorf("after %q was interrupted: %+v", code, a)
		}
	}
}

// checkContexts checks that contexts are separate, and which languages exist.
func checkContexts(t *testing.T, client *http.Client, js func(*testing.T, string) answer) {
	for _, language := range []string{"", "python", "typescript", "bash", "r"} {
		if text := refusal(t, client, map[string]any{"code": "1", "language": language}); !strings.HasPrefix(text, "501 ") && !strings.HasPrefix(text, "400 ") || !strings.Contains(text, "javascript only") {
			t.Errorf("language %q: got %s, want an error that names javascript", language, text)
		}
	}
	resp, err := post(t.Context(), t, client, "/contexts", map[string]any{"language": "js", "cwd": "/tmp"})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var info struct{ ID, Language, Cwd string }
	if err := json.NewDecoder(resp.Body).Decode(&info); err != nil || info.Language != "javascript" {
		t.Fatalf("a new context: %+v, %v", info, err)
	}
	js(t, "var own = 1")
	if a := execute(t, client, map[string]any{"code": "typeof own + process.cwd()", "context_id": info.ID}); a.result != "undefined/tmp" {
		t.Errorf("another context: %+v", a)
	}
	if a := execute(t, client, map[string]any{"code": "process.env.X", "context_id": info.ID, "env_vars": map[string]string{"X": "set"}}); a.result != "set" {
		t.Errorf("a variable: %+v", a)
	}
}

// refusal returns the status and the text of the answer to a request.
func refusal(t testing.TB, client *http.Client, body map[string]any) string {
	t.Helper()
	resp, err := post(t.Context(), t, client, "/execute", body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status + " " + string(text)
}

// A deterministic context has the same clock and random numbers each time, and its timers take no
// time.
func checkDeterministic(t *testing.T, e engine.Engine, image engine.Image) {
	var results []string
	for _, id := range []string{"jsfirst", "jssecond"} {
		b := start(t, e, image, id)
		a := execute(t, b.code(t), map[string]any{"language": "javascript", "code": `const from = Date.now();
await new Promise((done) => setTimeout(done, 3600e3));
[Math.random(), new Date(from).getUTCFullYear(), Date.now() - from >= 3600e3].join()`})
		results = append(results, a.result)
	}
	if results[0] != results[1] || !strings.HasSuffix(results[0], ",2022,true") {
		t.Errorf("two deterministic contexts returned %q", results)
	}
}
