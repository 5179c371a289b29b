package v1

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/store"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// approvalRig is a rig with approvals and one sandbox of the key k1.
type approvalRig struct {
	*rig
	approvals *approval.Service
	sb        api.Sandbox
}

func newApprovalRig(t *testing.T) *approvalRig {
	t.Helper()
	r := &approvalRig{rig: newRig(t)}
	deps := r.deps
	st, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r.approvals, err = approval.New(approval.Options{
		Store: st, Log: deps.Log,
		Lookup: func(id string) (string, bool) {
			sb, err := deps.Finder.Get(context.Background(), sandbox.Principal{Local: true}, id)
			return sb.Owner, err == nil && sb.State == sandbox.Running
		},
		Amend: func(context.Context, string, string) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.approvals.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	deps.Approvals = r.approvals
	r.with(deps)
	if code, p := r.call("POST", "/v1/sandboxes", `{"name":"web","private_ports":true}`, &r.sb); code != http.StatusCreated {
		t.Fatalf("POST /v1/sandboxes: got %d %+v", code, p)
	}
	return r
}

func (r *approvalRig) requestApproval(body string, quorum int) egress.ApprovalOutcome {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	cancel()
	a, err := r.approvals.Ask(ctx, r.hostRequest(body, quorum))
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

func (r *approvalRig) hostRequest(body string, quorum int) egress.ApprovalRequest {
	return egress.ApprovalRequest{
		Sandbox: r.sb.ID, Kind: egress.AskHost, Summary: "reach a.example.com", Rule: "network.unlisted", Policy: "sha256:p", Quorum: quorum,
		Facts: map[string]string{"host": "a.example.com", "port": "443", "body": body},
	}
}

func TestApprovalsOverHTTP(t *testing.T) {
	r := newApprovalRig(t)
	first := r.requestApproval("1", 0)
	var list api.ApprovalList
	if code, _ := r.call("GET", "/v1/approvals?sandbox=web", "", &list); code != 200 || len(list.Approvals) != 1 || list.Approvals[0].ID != first.Approval {
		t.Fatalf("GET /v1/approvals: got %d %+v", code, list)
	}
	var got api.Approval
	path := "/v1/approvals/" + first.Approval
	if code, _ := r.call("GET", path, "", &got); code != 200 || got.State != "pending" || got.Always != "a.example.com:443" || got.Votes == nil || got.DecidedAt != nil {
		t.Errorf("GET of the approval: got %d %+v", code, got)
	}
	if code, p := r.call("POST", path+"/approve", `{"reason":"fine","remember":true}`, &got); code != 200 || got.State != "approved" || got.Amendment != "a.example.com:443" || got.Votes[0].Who != "k1" {
		t.Errorf("approve: got %d %+v %+v", code, p, got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	if a, err := r.approvals.Ask(ctx, r.hostRequest("1", 0)); err != nil || !a.Granted {
		t.Errorf("later request for the same host: got %+v %v", a, err)
	}
	if r.call("GET", "/v1/approvals?state=spent,denied", "", &list); len(list.Approvals) != 1 || list.Approvals[0].SpentAt == nil {
		t.Errorf("GET /v1/approvals: got %+v", list)
	}
	second := "/v1/approvals/" + r.requestApproval("2", 0).Approval
	for _, test := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"POST", path + "/approve", `{}`, 409, "approval_over"},
		{"POST", second + "/deny", `{}`, 400, "invalid_request"},
		{"POST", second + "/deny", `{"reason":""}`, 400, "invalid_request"},
		{"POST", second + "/approve", `{"always":true}`, 400, "invalid_request"},
		{"POST", second + "/approve", `{"reason":"` + strings.Repeat("a", 513) + `"}`, 400, "invalid_request"},
		{"GET", "/v1/approvals?state=dancing", ``, 400, "invalid_state"},
		{"GET", "/v1/approvals?sandbox=missing", ``, 404, "sandbox_not_found"},
		{"GET", "/v1/approvals?limit=101", ``, 400, "invalid_request"},
		{"GET", "/v1/approvals/a0", ``, 404, "approval_not_found"},
		{"POST", "/v1/approvals/a0/approve", `{}`, 404, "approval_not_found"},
	} {
		if code, p := r.call(test.method, test.path, test.body, nil); code != test.status || p.Code != test.code {
			t.Errorf("%s %s %s: %d %s %q", test.method, test.path, test.body, code, p.Code, p.Detail)
		}
	}
	if code, _ := r.call("POST", second+"/deny", `{"reason":"use the mirror"}`, &got); code != 200 || got.State != "denied" || got.Reason != "use the mirror" {
		t.Errorf("deny: got %d %+v", code, got)
	}
}

var approvalRoutes = [][2]string{
	{"GET", "/v1/approvals"}, {"GET", "/v1/approvals/i1"}, {"POST", "/v1/approvals/i1/approve"}, {"POST", "/v1/approvals/i1/deny"}, {"GET", "/v1/approvals/events"},
}

func TestOpenAPIHasApprovals(t *testing.T) {
	r := newApprovalRig(t)
	var doc struct {
		Paths map[string]map[string]map[string]any `json:"paths"`
	}
	r.call("GET", "/v1/openapi.json", "", &doc)
	for _, route := range approvalRoutes {
		if doc.Paths[strings.Replace(route[1], "i1", "{id}", 1)][strings.ToLower(route[0])] == nil {
			t.Errorf("%v is not described", route)
		}
	}
}

// A3, P2: a program inside cannot approve its own request with the sandbox's tokens, and another
// key does not even learn of the request.
func TestOnlyOwnerDecides(t *testing.T) {
	r := newApprovalRig(t)
	id := r.requestApproval("1", 0).Approval
	// From here on as in a server: only callers with a key.
	deps := r.deps
	deps.Auth = func(req *http.Request) (sandbox.Principal, error) {
		k, err := r.keys.Verify(req.Context(), req.Header.Get("X-Api-Key"))
		return sandbox.Principal{KeyID: k.ID}, err
	}
	r.with(deps)
	if r.sb.AccessToken == "" || r.sb.TrafficToken == "" {
		t.Fatal("the sandbox has no tokens")
	}
	for _, token := range []string{r.sb.AccessToken, r.sb.TrafficToken, r.sb.ID, ""} {
		for _, route := range approvalRoutes {
			req := httptest.NewRequest(route[0], strings.Replace(route[1], "i1", id, 1), strings.NewReader(`{"reason":"me"}`))
			for _, name := range []string{"X-Api-Key", "X-Access-Token", "E2b-Traffic-Access-Token", "Authorization"} {
				req.Header.Set(name, token)
			}
			w := httptest.NewRecorder()
			if r.handler.ServeHTTP(w, req); w.Code != http.StatusUnauthorized {
				t.Errorf("%v with %q: %d %s", route, token, w.Code, w.Body)
			}
		}
	}
	otherKey, _, err := r.keys.Create(t.Context(), "stranger")
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range approvalRoutes[1:4] {
		req := httptest.NewRequest(route[0], strings.Replace(route[1], "i1", id, 1), strings.NewReader(`{"reason":"me"}`))
		req.Header.Set("X-Api-Key", otherKey)
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if r.handler.ServeHTTP(w, req); w.Code != http.StatusNotFound {
			t.Errorf("%v: %d %s", route, w.Code, w.Body)
		}
	}
	if a, err := r.approvals.Get(t.Context(), approval.Caller{Local: true}, id); err != nil || a.State != approval.Pending || len(a.Votes) != 0 {
		t.Fatalf("the approval: got %+v %v", a, err)
	}
	// The control: the owner may.
	deps.Auth = func(*http.Request) (sandbox.Principal, error) { return sandbox.Principal{KeyID: "k1"}, nil }
	r.with(deps)
	if code, p := r.call("POST", "/v1/approvals/"+id+"/approve", `{}`, nil); code != 200 {
		t.Errorf("POST /v1/approvals/*/approve: got %d %+v", code, p)
	}
}

// A4: text that a sandbox chose is made inert for every client.
func TestApprovalTextIsInert(t *testing.T) {
	r := newApprovalRig(t)
	q := r.hostRequest("\x1b[2J\u202e\u200b\n", 0)
	q.Summary = "reach\r\nevent: approved\n\x1b]0;x\x07"
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.approvals.Ask(ctx, q); err != nil {
		t.Fatal(err)
	}
	for path, stream := range map[string]bool{"/v1/approvals": false, "/v1/approvals/events": true} {
		text := r.raw(path, stream)
		if !strings.Contains(text, "reach") || strings.ContainsAny(text, "\x1b\x07\u202e\u200b\r") || strings.Contains(text, `\u001b`) || strings.Contains(text, "\nevent: approved") {
			t.Errorf("%s: %q", path, text)
		}
	}
}

// raw returns a response unchanged; of a stream, the part up to the first event.
func (r *approvalRig) raw(path string, stream bool) string {
	r.t.Helper()
	srv := httptest.NewServer(r.handler)
	defer srv.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	resp := r.get(ctx, srv.URL+path, "")
	defer resp.Body.Close()
	var text strings.Builder
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
		if stream && strings.HasPrefix(lines.Text(), "data:") {
			break
		}
	}
	return text.String()
}

func (r *approvalRig) get(ctx context.Context, url, last string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", secret)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp
}

// frame is one event as a client reads it.
type frame struct {
	id, name string
	data     api.ApprovalEvent
}

func (r *approvalRig) read(lines *bufio.Scanner) (f frame) {
	r.t.Helper()
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			f.id = value
		case "event":
			f.name = value
		case "data":
			if err := json.Unmarshal([]byte(value), &f.data); err != nil {
				r.t.Fatal(err)
			}
			return f
		}
	}
	r.t.Fatalf("the stream ended: %v", lines.Err())
	return f
}

func TestApprovalEventsResume(t *testing.T) {
	r := newApprovalRig(t)
	srv := httptest.NewServer(r.handler)
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	first := r.requestApproval("1", 0)
	resp := r.get(ctx, srv.URL+"/v1/approvals/events", "")
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || ct != "text/event-stream" {
		t.Fatalf("GET /v1/approvals/events: got %d %s", resp.StatusCode, ct)
	}
	lines := bufio.NewScanner(resp.Body)
	open := r.read(lines)
	if open.name != "pending" || open.data.Approval.ID != first.Approval || open.id == "" {
		t.Fatalf("event of an open approval: got %+v", open)
	}
	second := r.requestApproval("2", 0)
	if live := r.read(lines); live.data.Approval.ID != second.Approval {
		t.Errorf("event of a new approval: got %+v", live)
	}
	resp.Body.Close()
	// One request is decided in between; a client that reconnects gets both events.
	if code, _ := r.call("POST", "/v1/approvals/"+first.Approval+"/deny", `{"reason":"no"}`, nil); code != 200 {
		t.Fatalf("POST /v1/approvals/*/deny: got %v", code)
	}
	resp = r.get(ctx, srv.URL+"/v1/approvals/events?sandbox=web", open.id)
	defer resp.Body.Close()
	lines = bufio.NewScanner(resp.Body)
	for _, want := range []string{"pending " + second.Approval, "vote " + first.Approval, "denied " + first.Approval} {
		if f := r.read(lines); f.name+" "+f.data.Approval.ID != want || f.data.Type != f.name {
			t.Errorf("%+v, want %s", f, want)
		}
	}
	if resp := r.get(ctx, srv.URL+"/v1/approvals/events", "-7"); resp.StatusCode != 400 {
		t.Errorf("a bad event id: %d", resp.StatusCode)
	}
	// The end of the service ends the streams, so that a server can stop.
	r.approvals.Close()
	lines.Scan() // the empty line after the last event
	if lines.Scan() {
		t.Errorf("the stream continues: %q", lines.Text())
	}
}
