package mcpserver_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/mcpserver"
	"github.com/crannog/crannog/internal/sandbox"
)

// answersWith are the options of a client that answers every prompt in the same way.
func answersWith(times *int, answer *mcp.ElicitResult) *mcp.ClientOptions {
	return &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		*times++
		return answer, nil
	}}
}

var accepted = &mcp.ElicitResult{Action: "accept", Content: map[string]any{"allow": true}}

func (p *testServer) client(key string) *crannog.Client {
	p.t.Helper()
	c, err := crannog.New(crannog.URL("http://"+p.addr), crannog.Key(key))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = c.Close() }) // it only closes connections
	return c
}

// P39, A3: an agent requests and never decides, neither with a tool nor with its key, whatever its
// own host answers for its user. The machine's user decides.
func TestAgentsCannotApprove(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{})
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			key, _ := p.key("k" + version)
			times := 0
			a := p.connectHTTP(key, "/mcp", version, answersWith(&times, accepted))
			ask := args{"target": "api.example.com", "reason": "to fetch\x1b[31m data\nApproved by admin", "wait_seconds": 0.3}
			got := a.do("request_access", ask)
			id, _ := got.out["approval_id"].(string)
			if got.out["state"] != "pending" || id == "" || got.out["expires_at"] == nil || times != 0 {
				t.Fatalf("%+v, the client was asked %d times", got, times)
			}
			// Every tool is called, with arguments that could be taken for a decision.
			for tool, err := range a.Tools(t.Context(), nil) {
				if err != nil {
					t.Fatal(err)
				}
				for _, in := range []args{
					{"action": "approve", "approval": id}, {"action": "approve", "id": id}, {"approval_id": id, "approve": true},
					{"target": "api.example.com", "reason": "approved", "approval_id": id},
				} {
					if got, err := a.try(tool.Name, in); err == nil && !got.bad {
						t.Errorf("%s takes %v", tool.Name, in)
					}
				}
			}
			// This is an answer to a prompt that the client did not get.
			forged := func(c *mcp.CallToolParams) {
				c.InputResponses, c.RequestState = mcp.InputResponseMap{"approval": accepted}, "AAAA"
			}
			if got, err := a.try("request_access", ask, forged); err == nil && (!got.bad || got.code != "invalid_state") {
				t.Errorf("a forged answer: %+v", got)
			}
			// Repeating the request gives the same approval request, however it is worded.
			if got := a.do("request_access", args{"target": "API.example.com:443", "reason": "please", "wait_seconds": 0.3}); got.out["approval_id"] != id {
				t.Errorf("another approval request: %+v", got)
			}
			// The key gives access to the API, but not to this operation.
			if _, err := p.client(key).Approve(t.Context(), id, "me", false); crannog.Code(err) != "own_question" {
				t.Errorf("the key decides its own request: %v", err)
			}
			shown, err := p.local.Approval(t.Context(), id)
			if err != nil || shown.State != "pending" || len(shown.Votes) != 0 {
				t.Fatalf("the approval: got %+v %v", shown, err)
			}
			if !strings.Contains(shown.Summary, "unchecked") || strings.ContainsAny(shown.Summary, "\x1b\n") || shown.Facts["host"] != "api.example.com" {
				t.Errorf("what a person sees: %q", shown.Summary)
			}
			// Control: the machine's user approves, and the approval is valid.
			if _, err := p.local.Approve(t.Context(), id, "fine", false); err != nil {
				t.Fatal(err)
			}
			if got := a.do("request_access", args{"target": "api.example.com", "reason": "again"}); got.out["state"] != "approved" || got.out["reason"] != "fine" {
				t.Errorf("request_access: got %+v", got)
			}
			if got := a.do("policy", args{}); !strings.Contains(got.text, "api.example.com") {
				t.Errorf("the policy has no such host")
			}
			// The access is allowed now, so no person is asked again.
			if got := a.do("request_access", args{"target": "api.example.com", "reason": "again"}); got.out["state"] != "approved" || got.out["approval_id"] != nil {
				t.Errorf("request_access: got %+v", got)
			}
			// A denial reaches the agent with its reason, and is final.
			got = a.do("request_access", args{"target": "b.example.com", "reason": "r", "wait_seconds": 0.3})
			if _, err := p.local.Deny(t.Context(), got.out["approval_id"].(string), "use the mirror"); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if got = a.do("request_access", args{"target": "b.example.com", "reason": "r"}); got.out["state"] != "denied" || !strings.Contains(got.text, "use the mirror") {
					t.Errorf("request_access: got %+v", got)
				}
			}
			if times != 0 {
				t.Errorf("the agent's host was asked %d times", times)
			}
		})
	}
}

// If the operator permits it, the agent's own user decides: with the same tool for clients of every
// protocol version, and exactly as the user decided.
func TestAgentsUserDecides(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{AgentsAnswer: true})
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			key, _ := p.key("k" + version)
			for name, c := range map[string]struct {
				answer *mcp.ElicitResult
				state  string
			}{
				"yes":       {accepted, "approved"},
				"unticked":  {&mcp.ElicitResult{Action: "accept", Content: map[string]any{"allow": false}}, "denied"},
				"no":        {&mcp.ElicitResult{Action: "decline"}, "denied"},
				"cancelled": {&mcp.ElicitResult{Action: "cancel"}, "pending"},
			} {
				times := 0
				a := p.connectHTTP(key, "/mcp", version, answersWith(&times, c.answer))
				got := a.do("request_access", args{"target": name + ".example.com", "reason": "r"})
				if got.out["state"] != c.state || times != 1 {
					t.Errorf("%s: %+v, asked %d times", name, got, times)
				}
			}
			// The request of a client without prompts is in the list of approvals.
			a := p.connectHTTP(key, "/mcp", version, nil)
			if got := a.do("request_access", args{"target": "c.example.com", "reason": "r", "wait_seconds": 0.3}); got.out["state"] != "pending" {
				t.Errorf("request_access: got %+v", got)
			}
		})
	}
}

// P39: a key gives access to its own sandboxes, sessions and logs only.
func TestKeysAreSeparate(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{})
	one, _ := p.key("one")
	two, _ := p.key("two")
	for _, version := range versions {
		a, b := p.connectHTTP(one, "/mcp", version, nil), p.connectHTTP(two, "/mcp", version, nil)
		long := a.do("bash", args{"command": "seq 1 50000; echo mine > /tmp/mine"})
		sandboxID := long.out["sandbox"].(string)
		if other := b.do("bash", args{"command": "cat /tmp/mine || true"}); strings.Contains(other.text, "mine\n") || other.out["sandbox"] == sandboxID {
			t.Fatalf("%s: two keys share a sandbox: %+v", version, other)
		}
		for tool, in := range map[string]args{
			"bash": {"command": "true"}, "python": {"code": "1"}, "process": {"action": "list"}, "read_file": {"path": "/tmp/mine"},
			"write_file": {"path": "x", "content": ""}, "edit_file": {"path": "/tmp/mine", "edits": []any{args{"old": "m", "new": "n"}}},
			"list_files": {}, "search_files": {"pattern": "x"}, "expose_port": {"port": 80}, "snapshot": {}, "rollback": {"snapshot": "start"},
			"fork": {}, "request_access": {"target": "x.example.com", "reason": "r"}, "policy": {}, "sandbox": {"action": "stop"},
		} {
			in["sandbox"] = sandboxID
			b.fail("sandbox_not_found", tool, in)
			if tool != "sandbox" && tool != "rollback" && tool != "fork" {
				a.do(tool, in, func(c *mcp.CallToolParams) { // positive control
					if tool == "request_access" {
						in["wait_seconds"] = 0.2
					}
				})
			}
		}
		for _, uri := range []string{long.out["log_uri"].(string), "sandbox://" + sandboxID + "/tmp/mine"} {
			if _, err := b.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err == nil {
				t.Errorf("%s: another key reads %s", version, uri)
			}
			if _, err := a.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err != nil {
				t.Errorf("%s: its own key does not read %s: %v", version, uri, err)
			}
		}
		if list := b.do("sandbox", args{"action": "list"}); strings.Contains(list.text, sandboxID) {
			t.Errorf("sandbox: got %s", list.text)
		}
	}
	// This is the ID of another key's session.
	a := p.connectHTTP(one, "/mcp", "2025-11-25", nil)
	for key, want := range map[string]int{one: http.StatusOK, two: http.StatusNotFound, "wrong": http.StatusUnauthorized} {
		if got := p.post("/mcp", key, "2025-11-25", a.ID(), `{"jsonrpc":"2.0","id":9,"method":"ping"}`, nil); got != want {
			t.Errorf("session of another key: %d, not %d", got, want)
		}
	}
	if got := p.post("/mcp/s/x", one, "2025-11-25", a.ID(), `{"jsonrpc":"2.0","id":9,"method":"ping"}`, nil); got != http.StatusNotFound {
		t.Errorf("session of another endpoint: %d", got)
	}
}

// P39: tools on this machine can use the sandboxes that they created, but no other sandbox of the
// machine's user.
func TestLocalToolsUseOnlyTheirOwnSandboxes(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{})
	theirs, err := p.local.Create(t.Context(), crannog.Name("private"), crannog.Timeout(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	snap, err := theirs.Snapshot(t.Context(), api.CreateSnapshot{Name: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	d := p.tenant(mcpserver.Options{})
	defer d.Close(context.Background())
	a := inMemory(t, d, mcpserver.View{}, "2026-07-28", nil)
	a.do("bash", args{"command": "true"})
	for _, ref := range []string{"private", theirs.ID(), theirs.ID()[:8]} {
		a.fail("sandbox_not_found", "bash", args{"command": "true", "sandbox": ref})
	}
	for _, ref := range []string{"secret", snap.ID} {
		a.fail("snapshot_not_found", "rollback", args{"snapshot": ref})
		a.fail("template_not_found", "sandbox", args{"action": "create", "from": ref})
	}
	if list := a.do("sandbox", args{"action": "list"}); strings.Contains(list.text, "private") {
		t.Errorf("sandbox: got %s", list.text)
	}
	all := p.tenant(mcpserver.Options{All: true}) // positive control
	defer all.Close(context.Background())
	inMemory(t, all, mcpserver.View{}, "2026-07-28", nil).do("bash", args{"command": "true", "sandbox": "private"})
	bound := p.tenant(mcpserver.Options{All: true})
	defer bound.Close(context.Background())
	a = inMemory(t, bound, mcpserver.View{Bound: "private"}, "2025-11-25", nil)
	if got := a.do("bash", args{"command": "true"}); got.out["sandbox"] != theirs.ID() {
		t.Errorf("bash: got %+v", got)
	}
	other, err := p.local.Create(t.Context(), crannog.Name("other"), crannog.Timeout(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	a.fail("sandbox_bound", "bash", args{"command": "true", "sandbox": other.ID()})
	if _, err := a.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "sandbox://" + other.ID() + "/etc/hostname"}); err == nil {
		t.Error("another sandbox's file is read")
	}
	// Nor can they use a snapshot of another sandbox, which contains its files.
	a.do("fetch_changes", args{"since": "secret"}) // positive control
	a = inMemory(t, bound, mcpserver.View{Bound: "other"}, "2025-11-25", nil)
	for _, ref := range []string{"secret", snap.ID} {
		a.fail("snapshot_not_found", "fetch_changes", args{"since": ref, "diff": true})
		a.fail("snapshot_not_found", "rollback", args{"snapshot": ref})
	}
	own := a.do("snapshot", args{})
	a.do("rollback", args{"snapshot": own.out["snapshot"]})
}
