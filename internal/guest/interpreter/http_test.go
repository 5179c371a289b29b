package interpreter

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newContext creates a context and returns its ID.
func (b *testServer) newContext(body payload) string {
	b.t.Helper()
	status, text := b.call("POST", "/contexts", body)
	var info contextInfo
	if err := json.Unmarshal([]byte(text), &info); status != 200 || err != nil || info.ID == "" {
		b.t.Fatalf("POST /contexts: %d %s", status, text)
	}
	return info.ID
}

func (b *testServer) contexts() []contextInfo {
	b.t.Helper()
	status, text := b.call("GET", "/contexts", nil)
	var infos []contextInfo
	if err := json.Unmarshal([]byte(text), &infos); status != 200 || err != nil {
		b.t.Fatalf("GET /contexts: %d %s", status, text)
	}
	return infos
}

func TestHealth(t *testing.T) {
	b := newTestServer(t)
	if status, body := b.call("GET", "/health", nil); status != 200 || body != `"OK"` {
		t.Errorf("GET /health: got %d %s, want 200", status, body)
	}
}

func TestContextsAreListedInOrder(t *testing.T) {
	b := newTestServer(t)
	first := b.contexts()
	if len(first) != 2 || first[0].Language != "python" || first[1].Language != "javascript" || first[0].Cwd != b.home {
		t.Fatalf("contexts of a new server: got %+v", first)
	}
	if len(children(t)) != 0 {
		t.Error("listing started a worker")
	}
	dir := t.TempDir()
	id := b.newContext(payload{"language": "js", "cwd": dir})
	b.bash("true").wantOK(t)
	all := b.contexts()
	if len(all) != 4 || all[2] != (contextInfo{id, "javascript", dir}) || all[3].Language != "bash" {
		t.Errorf("contexts in order of creation: got %+v", all)
	}
	o := b.run(payload{"code": "process.cwd()", "context_id": id}).wantOK(t)
	if o.text() != dir {
		t.Errorf("working directory of the new context: got %q, want %q", o.text(), dir)
	}
	o = b.run(payload{"code": "3", "context_id": first[0].ID}).wantOK(t)
	if o.text() != "3" {
		t.Errorf("default context by ID: %+v", o.lines)
	}
	if o := b.python("4"); o.count != 2 {
		t.Errorf("an execution without context did not use the first context: %+v", o.lines)
	}
}

func TestInvalidRequestsAreRejected(t *testing.T) {
	b := newTestServer(t)
	file := filepath.Join(b.home, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path string
		body         any
		status       int
		text         string
	}{
		{"POST", "/execute", payload{"code": "1", "context_id": "x", "language": "python"}, 400, "Only one of context_id or language can be provided"},
		{"POST", "/execute", payload{"code": "1", "context_id": "x"}, 404, "Context x not found"},
		{"POST", "/execute", payload{"code": "1", "language": "cobol"}, 400, `Language "cobol" is not supported`},
		{"POST", "/execute", payload{}, 400, "code is missing"},
		{"POST", "/execute", payload{"code": 5}, 400, "not the expected JSON object"},
		{"POST", "/execute", []int{1}, 400, "not the expected JSON object"},
		{"POST", "/execute", payload{"code": "1", "env_vars": payload{"A=B": "1"}}, 400, `"A=B" cannot be set`},
		{"POST", "/execute", payload{"code": "1", "env_vars": payload{"A": "\x00"}}, 400, "cannot be set"},
		{"POST", "/execute", payload{"code": strings.Repeat("#", maxBody)}, 413, "longer than"},
		{"POST", "/contexts", payload{"language": "julia"}, 400, `Language "julia" is not supported`},
		{"POST", "/contexts", payload{"cwd": "/no/such"}, 400, "is not a directory"},
		{"POST", "/contexts", payload{"cwd": "relative"}, 400, "is not a directory"},
		{"POST", "/contexts", payload{"cwd": file}, 400, "is not a directory"},
		{"POST", "/contexts/x/restart", nil, 404, "Context x not found"},
		{"DELETE", "/contexts/x", nil, 404, "Context x not found"},
		{"GET", "/execute", nil, 405, ""},
		{"GET", "/nothing", nil, 404, ""},
	} {
		status, text := b.call(c.method, c.path, c.body)
		if status != c.status || !strings.Contains(text, c.text) {
			t.Errorf("%s %s: %d %q, want %d %q", c.method, c.path, status, text, c.status, c.text)
		}
	}
	if n := len(b.contexts()); n != 2 {
		t.Errorf("after rejected requests: got %d contexts, want 2", n)
	}
}

func TestExecutionNeedsToken(t *testing.T) {
	b := newTestServer(t)
	for _, token := range []string{"", "wrong", testToken + "x"} {
		resp := b.do(t.Context(), "POST", "/execute", payload{"code": "open('made', 'w')"}, token)
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized || strings.Contains(string(text), testToken) {
			t.Errorf("execution with the token %q: got %d %s, want 401", token, resp.StatusCode, text)
		}
	}
	b.server.opts.AccessToken = func() string { return "" }
	if status, _ := b.call("POST", "/execute", payload{"code": "1"}); status != http.StatusUnauthorized {
		t.Errorf("server without a token: got status %d, want 401", status)
	}
	if _, err := os.Stat(filepath.Join(b.home, "made")); err == nil {
		t.Error("the code of a rejected request ran")
	}
}

func TestContextsAreLimited(t *testing.T) {
	b := newTestServer(t)
	b.server.mu.Lock()
	for len(b.server.sessions) < maxContexts {
		b.server.sessions = append(b.server.sessions, b.server.newSession(pythonLanguage, b.home))
	}
	b.server.mu.Unlock()
	if status, text := b.call("POST", "/contexts", payload{}); status != 429 {
		t.Errorf("one context too many: got %d %s, want 429", status, text)
	}
}

func TestMissingInterpreter(t *testing.T) {
	b := newTestServer(t)
	b.env["PATH"] = t.TempDir()
	status, text := b.call("POST", "/execute", payload{"code": "1"})
	if status != 400 || !strings.Contains(text, "cannot run python") {
		t.Errorf("missing interpreter: got %d %s, want 400 and a message", status, text)
	}
	b.env["PATH"] = "/usr/bin"
	b.python("1").wantOK(t)
}

func TestCloseEndsRunningCode(t *testing.T) {
	b := newTestServer(t)
	lines, _ := b.begin(payload{"code": endlessCode["python"]})
	b.server.Close()
	if o := b.finish(lines); o.err == nil || o.err.Name != "ExecutionAborted" {
		t.Errorf("execution during Close: got %+v, want ExecutionAborted", o.lines)
	}
	if len(children(t)) != 0 {
		t.Error("a worker still runs after Close")
	}
	if status, text := b.call("POST", "/execute", payload{"code": "1"}); status == 200 {
		t.Errorf("executed after Close: %s", text)
	}
	if status, text := b.call("POST", "/contexts", payload{}); status != 500 {
		t.Errorf("new context after Close: got %d %s, want 500", status, text)
	}
}
