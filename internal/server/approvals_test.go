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

func (s *running) ask(box string) string {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	cancel()
	a, err := s.d.Approvals.Ask(ctx, egress.ApprovalRequest{
		Sandbox: box, Kind: egress.AskHost, Summary: "reach a.example.com", Rule: "network.unlisted", Policy: "sha256:p",
		Facts: map[string]string{"host": "a.example.com", "port": "443"},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return a.Approval
}

// post decides an approval request with a credential in every supported header.
func (s *running) post(path, secret string) int {
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
func TestSandboxTokensAnswerNothing(t *testing.T) {
	s := serve(t)
	secret, k, err := s.d.Keys.Create(t.Context(), "owner")
	if err != nil {
		t.Fatal(err)
	}
	box, err := s.d.Service.Create(t.Context(), sandbox.Principal{KeyID: k.ID}, sandbox.CreateRequest{Template: "base", PrivatePorts: true})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), s.dir)
	if err != nil {
		t.Fatal(err)
	}
	record, err := st.Get(t.Context(), box.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	id := s.ask(box.ID)
	for name, token := range map[string]string{"access": record.AccessToken, "traffic": record.TrafficToken, "control": record.ControlToken} {
		if token == "" {
			t.Errorf("there is no %s token", name)
		}
		if status := s.post("/v1/approvals/"+id+"/approve", token); status != http.StatusUnauthorized {
			t.Errorf("%s token: %d", name, status)
		}
	}
	if a, err := s.d.Approvals.Get(t.Context(), approval.Caller{Local: true}, id); err != nil || a.State != approval.Pending {
		t.Errorf("%+v %v", a, err)
	}
	if status := s.post("/v1/approvals/"+id+"/approve", secret); status != http.StatusOK {
		t.Errorf("the owner's key: %d", status)
	}
}

// A5: a server that shuts down leaves approval requests open and does not wait for watchers. The
// next server finds the requests.
func TestQuestionsOutliveTheServer(t *testing.T) {
	s := serve(t)
	box, err := s.d.Service.Create(t.Context(), local, sandbox.CreateRequest{Template: "base"})
	if err != nil {
		t.Fatal(err)
	}
	id := s.ask(box.ID)
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
		t.Fatalf("%v %v", res, err)
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
	// A handler that delays the shutdown is cut off at last, and its stream breaks.
	if _, err := io.ReadAll(events); err != nil {
		t.Errorf("a watcher held the end up: %v", err)
	}
	shut(t, s.d)
	next := mustOpen(t, s.dir, true)
	if a, err := next.Approvals.Get(t.Context(), approval.Caller{Local: true}, id); err != nil || a.State != approval.Pending {
		t.Errorf("%+v %v", a, err)
	}
}
