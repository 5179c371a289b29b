package mcpserver_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/key"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// request sends one request with a key and returns the answer's status and body.
func (p *testServer) request(key, method, path, body string) (int, string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, "http://"+p.addr+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("X-API-Key", key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// P39, A3: a key for agents gives access to their tools only. Used in any other way, it neither
// decides a request, nor widens a policy, nor creates a sandbox with a policy of its choice.
func TestAgentKeysAreOnlyForTools(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{})
	secret, made, err := p.d.Keys.CreateFor(t.Context(), "agent", key.MCP)
	if err != nil {
		t.Fatal(err)
	}
	var sandboxID, approvalID string
	for _, version := range versions {
		a := p.connectHTTP(secret, "/mcp", version, nil)
		if got := a.do("bash", args{"command": "echo works"}); got.text != "works\n" || sandboxID != "" && got.out["sandbox"] != sandboxID {
			t.Errorf("%s: %+v", version, got)
		} else {
			sandboxID, _ = got.out["sandbox"].(string)
		}
		got := a.do("request_access", args{"target": "api.example.com", "reason": "r", "wait_seconds": 0.3})
		approvalID, _ = got.out["approval_id"].(string)
	}
	if shown, err := p.local.Get(t.Context(), sandboxID); err != nil || shown.Info().Owner != made.ID {
		t.Fatalf("the sandbox does not belong to the key: %v", err)
	}
	for _, c := range []struct{ method, path, body string }{
		{http.MethodGet, "/v1/sandboxes", ""},
		{http.MethodPost, "/v1/sandboxes", `{"access":{"net":"open"}}`},
		{http.MethodPut, "/v1/sandboxes/" + sandboxID + "/access", `{"net":"open"}`},
		{http.MethodPost, "/v1/approvals/" + approvalID + "/approve", `{}`},
		{http.MethodGet, "/v1/approvals", ""},
		{http.MethodPost, "/v1/keys", `{"name":"mine"}`},
		{http.MethodGet, "/sandboxes", ""},
		{http.MethodPost, "/sandboxes", `{"templateID":"base"}`},
	} {
		if got, text := p.request(secret, c.method, c.path, c.body); got != http.StatusForbidden || !strings.Contains(text, "only for the tools of agents at /mcp") {
			t.Errorf("%s %s: %d %s", c.method, c.path, got, text)
		}
	}
	hosttest.Eventually(t, "the audit log names the refused key", func() bool { return len(p.refusedRequests("key:"+made.ID, "denied")) == 8 })
	// Control: a key for the API gives access to all of it.
	apiKey, _ := p.key("whole")
	for _, path := range []string{"/v1/sandboxes", "/v1/approvals", "/sandboxes"} {
		if got, text := p.request(apiKey, http.MethodGet, path, ""); got != http.StatusOK {
			t.Errorf("a key for the API at %s: %d %s", path, got, text)
		}
	}
	if got, err := p.local.Approval(t.Context(), approvalID); err != nil || got.State != "pending" || len(got.Votes) != 0 {
		t.Errorf("the approval request is %+v %v", got, err)
	}
	if _, err := p.d.Keys.Revoke(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	if got := p.post("/mcp", secret, "", "", hello, nil); got != http.StatusUnauthorized {
		t.Errorf("a revoked key: %d", got)
	}
}

// requestAccess calls request_access without a session, like a client that writes its own messages.
// It returns the code of the error, the state of the approval request, and the state that the
// client must send back.
func (p *testServer) requestAccess(key, target, sandboxID, sentState string) (code, state, returned string) {
	p.t.Helper()
	in := map[string]any{"target": target, "reason": "r", "wait_seconds": 0.1}
	if sandboxID != "" {
		in["sandbox"] = sandboxID
	}
	params := map[string]any{"name": "request_access", "arguments": in, "_meta": map[string]any{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "t", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": map[string]any{"elicitation": map[string]any{"form": map[string]any{}}},
	}}
	if sentState != "" {
		params["requestState"] = sentState
		params["inputResponses"] = map[string]any{"approval": map[string]any{"action": "accept", "content": map[string]any{"allow": true}}}
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
	if err != nil {
		p.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, "http://"+p.addr+"/mcp", bytes.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "X-API-Key": key,
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "request_access",
	} {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	var got struct {
		Result struct {
			Meta struct {
				Error struct{ Code string } `json:"crannog/error"`
			} `json:"_meta"`
			RequestState      string
			StructuredContent struct{ State string }
		}
	}
	data := text[bytes.IndexByte(text, '{'):]
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&got); err != nil {
		p.t.Fatalf("%v: %s", err, text)
	}
	return got.Result.Meta.Error.Code, got.Result.StructuredContent.State, got.Result.RequestState
}

// P39: exactly what a user was shown is allowed: a decision about one host and one sandbox does not
// apply to another.
func TestAnswersApplyToOnePromptOnly(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{AgentsAnswer: true})
	key, _ := p.key("k")
	a := p.connectHTTP(key, "/mcp", "2025-11-25", nil)
	first := a.do("bash", args{"command": "true"}).out["sandbox"].(string)
	second := a.do("sandbox", args{"action": "create"}).out["sandbox"]
	if second == nil {
		t.Fatalf("no second sandbox: %+v", a.do("sandbox", args{"action": "list"}))
	}
	_, _, returned := p.requestAccess(key, "shown.example.com", "", "")
	if returned == "" {
		t.Fatal("the client got no prompt")
	}
	for name, c := range map[string]struct{ target, sandboxID string }{
		"another host":    {"other.example.com", ""},
		"another port":    {"shown.example.com:8443", ""},
		"another sandbox": {"shown.example.com", second.(string)},
	} {
		if code, state, _ := p.requestAccess(key, c.target, c.sandboxID, returned); code != "invalid_state" {
			t.Errorf("%s: %q %q", name, code, state)
		}
	}
	list, err := p.local.Approvals(t.Context(), crannog.ApprovalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range list {
		if q.State != "pending" || len(q.Votes) > 0 {
			t.Errorf("a request was decided: %+v", q)
		}
	}
	hosttest.Eventually(t, "the audit log names who answered", func() bool { return len(p.refusedRequests("key:", "invalid_state")) == 3 })
	// Control: the decision applies to the request that was shown.
	if code, state, _ := p.requestAccess(key, "shown.example.com", first, returned); code != "" || state != "approved" {
		t.Errorf("what was shown: %q %q", code, state)
	}
}

// refusedRequests lists the refused requests of an actor in the audit log.
func (p *testServer) refusedRequests(actor, outcome string) (list []string) {
	p.t.Helper()
	err := p.d.Audit.Read(p.t.Context(), audit.Filter{}, false, func(e audit.Entry) error {
		var f payload.Action
		if e.Kind != audit.Action || !strings.HasPrefix(e.Actor, actor) {
			return nil
		}
		if err := json.Unmarshal(e.Data, &f); err != nil {
			return err
		}
		if f.Outcome == outcome {
			list = append(list, f.Do)
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return list
}
