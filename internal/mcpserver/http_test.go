package mcpserver_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// post sends one message and returns the status.
func (p *testServer) post(path, key, version, session, body string, set func(*http.Request)) int {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, "http://"+p.addr+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range map[string]string{"X-API-Key": key, "Mcp-Protocol-Version": version, "Mcp-Session-Id": session} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	if set != nil {
		set(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // only the status is needed
	return resp.StatusCode
}

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

func TestRequestsNeedAKey(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{})
	key, id := p.key("k")
	for name, c := range map[string]struct {
		key  string
		set  func(*http.Request)
		want int
	}{
		"key":         {key, nil, http.StatusOK},
		"bearer":      {"", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+key) }, http.StatusOK},
		"none":        {"", nil, http.StatusUnauthorized},
		"wrong":       {"e2b_0000", nil, http.StatusUnauthorized},
		"id":          {id, nil, http.StatusUnauthorized},
		"rebound":     {key, func(r *http.Request) { r.Host = "evil.example" }, http.StatusForbidden},
		"page":        {key, func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, http.StatusForbidden},
		"unknown key": {"", func(r *http.Request) { r.Host = "evil.example" }, http.StatusForbidden},
	} {
		if got := p.post("/mcp", c.key, "", "", hello, c.set); got != c.want {
			t.Errorf("%s: %d, not %d", name, got, c.want)
		}
	}
	for code, want := range map[string]int{"key_invalid": 3, "host_refused": 2, "origin_refused": 1} {
		hosttest.Eventually(t, "the audit log has "+code, func() bool { return len(p.refusedRequests("", code)) == want })
	}
	if got := p.post("/mcp", key, "2025-11-25", "", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"`+strings.Repeat("a", 9<<20)+`"}}`, nil); got == http.StatusOK {
		t.Errorf("a message of 9 MiB: %d", got)
	}
	if got := p.post("/mcp", key, "2026-07-28", "", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"`+strings.Repeat("a", 9<<20)+`"}}`, nil); got != http.StatusRequestEntityTooLarge {
		t.Errorf("a message of 9 MiB without a session: %d", got)
	}
	// A revoked key gives access to nothing, not even to its open sessions.
	a := p.connectHTTP(key, "/mcp", "2025-11-25", nil)
	a.do("bash", args{"command": "true"})
	if _, err := p.d.Keys.Revoke(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if got, err := a.try("bash", args{"command": "true"}); err == nil {
		t.Errorf("a revoked key works: %+v", got)
	}
}

func TestSessionsAreBounded(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{})
	key, _ := p.key("k")
	other, _ := p.key("o")
	status := map[int]int{}
	for range 40 {
		status[p.post("/mcp", key, "", "", hello, nil)]++
	}
	if status[http.StatusOK] != 40 {
		t.Errorf("new sessions, while others are idle: %v", status)
	}
	if got := p.post("/mcp", other, "", "", hello, nil); got != http.StatusOK {
		t.Errorf("another key: %d", got)
	}
	for i := range 200 {
		if got := p.post(fmt.Sprintf("/mcp/s/x%d", i), other, "2026-07-28", "", `{}`, nil); got == http.StatusTooManyRequests {
			t.Fatalf("endpoint %d: %d", i, got)
		}
	}
}

// The default sandbox is found again by a server that has just started.
func TestNewServerFindsTheDefaultSandbox(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{})
	key, _ := p.key("k")
	first := p.connectHTTP(key, "/mcp", "2026-07-28", nil).do("bash", args{"command": "cd /usr; X=7"})
	d := p.tenant(optionsFor(p.client(key)))
	a := inMemory(t, d, view(), "2025-11-25", nil)
	if got := a.do("bash", args{"command": "pwd; echo $X"}); got.out["sandbox"] != first.out["sandbox"] || !strings.HasPrefix(got.text, "/usr\n7\n") {
		t.Errorf("bash: got %+v", got)
	}
	sb, err := p.local.Get(t.Context(), first.out["sandbox"].(string))
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := a.do("bash", args{"command": "pwd"}); got.out["sandbox"] != sb.ID() {
		t.Errorf("a paused sandbox is not resumed: %+v", got)
	}
	if err := sb.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := a.do("bash", args{"command": "pwd"}); got.out["sandbox"] == sb.ID() {
		t.Error("a sandbox that has ended is used")
	}
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if list, err := p.local.List(t.Context(), crannog.ListOptions{}); err != nil || len(list) != 1 {
		t.Errorf("the sandbox ended with its Tenant: %v %v", list, err)
	}
}

func TestSessionsLeakNothing(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{})
	key, _ := p.key("k")
	work := func() {
		for _, version := range versions {
			a := p.connectHTTP(key, "/mcp", version, nil)
			a.do("bash", args{"command": "seq 1 50000"})
			a.do("python", args{"code": "1"})
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	}
	work()
	// The comparison starts with the lowest number: a higher one would hide a leak.
	before, same := runtime.NumGoroutine(), 0
	hosttest.Eventually(t, "the number of goroutines is stable", func() bool {
		if n := runtime.NumGoroutine(); n < before {
			before, same = n, 0
		}
		same++
		return same > 60
	})
	for range 5 {
		work()
	}
	hosttest.EventuallyAtMost(t, "goroutines", before+10, runtime.NumGoroutine)
}
