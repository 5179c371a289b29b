package server_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server"
	"github.com/crannog/crannog/internal/store"
)

// ask requests an approval for a sandbox, and returns the request's ID.
func (s *testServer) ask(sandboxID string) string {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	cancel()
	a, err := s.d.Approvals.Ask(ctx, egress.ApprovalRequest{
		Sandbox: sandboxID, Kind: egress.AskHost, Summary: "reach a.example.com", Rule: "network.unlisted", Policy: "sha256:p",
		Facts: map[string]string{"host": "a.example.com", "port": "443"},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return a.Approval
}

// post sends a request with a credential in every supported header, and returns the status.
func (s *testServer) post(path, secret string) int {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+s.addr+path, strings.NewReader(`{}`))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for _, name := range []string{"X-API-Key", "X-Access-Token", "E2b-Traffic-Access-Token"} {
		req.Header.Set(name, secret)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// A3: a sandbox's own tokens cannot decide its approval requests; a key of its owner can.
func TestSandboxTokensCannotApprove(t *testing.T) {
	s := serve(t)
	secret, k, err := s.d.Keys.Create(t.Context(), "owner")
	if err != nil {
		t.Fatal(err)
	}
	sb, err := s.d.Service.Create(t.Context(), sandbox.Principal{KeyID: k.ID}, sandbox.CreateRequest{Template: "base", PrivatePorts: true})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), s.dir)
	if err != nil {
		t.Fatal(err)
	}
	row, err := st.Get(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	id := s.ask(sb.ID)
	for name, token := range map[string]string{"access": row.AccessToken, "traffic": row.TrafficToken, "control": row.ControlToken} {
		if token == "" {
			t.Errorf("the sandbox has no %s token", name)
		}
		if status := s.post("/v1/approvals/"+id+"/approve", token); status != http.StatusUnauthorized {
			t.Errorf("%s token: got status %d, want 401", name, status)
		}
	}
	if a, err := s.d.Approvals.Get(t.Context(), approval.Caller{Local: true}, id); err != nil || a.State != approval.Pending {
		t.Errorf("after the tokens: got %+v (%v), want the request pending", a, err)
	}
	if status := s.post("/v1/approvals/"+id+"/approve", secret); status != http.StatusOK {
		t.Errorf("owner's key: got status %d, want 200", status)
	}
}

// A5: a server that shuts down leaves approval requests open and does not wait for watchers. The
// next server finds the requests.
func TestApprovalRequestsOutliveServer(t *testing.T) {
	s := serve(t)
	sb, err := s.d.Service.Create(t.Context(), local, sandbox.CreateRequest{Template: "base"})
	if err != nil {
		t.Fatal(err)
	}
	id := s.ask(sb.ID)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", server.SocketPath(s.dir))
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/v1/approvals/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := transport.RoundTrip(req)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("events: got %v, %v; want status 200", res, err)
	}
	defer res.Body.Close()
	events := bufio.NewReader(res.Body)
	for line := ""; !strings.Contains(line, id); {
		if line, err = events.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	s.stop()
	if err := <-s.served; err != nil {
		t.Error(err)
	}
	// If a handler delayed the shutdown, its connection would be cut and reading would fail.
	if _, err := io.ReadAll(events); err != nil {
		t.Errorf("event stream: got %v, want an ordinary end", err)
	}
	closeServer(t, s.d)
	next := mustOpen(t, s.dir, true)
	if a, err := next.Approvals.Get(t.Context(), approval.Caller{Local: true}, id); err != nil || a.State != approval.Pending {
		t.Errorf("after the restart: got %+v (%v), want the request pending", a, err)
	}
}
