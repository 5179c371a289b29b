package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// templates has one template, for every reference.
type templates struct{}

func (templates) Resolve(context.Context, sandbox.Reference) (sandbox.Template, error) {
	return sandbox.Template{ID: "base0000000000000000", Name: "base", Image: engine.ViewOf("/", "")}, nil
}

// testServer is a server with one sandbox, on a local socket.
type testServer struct {
	t         *testing.T
	d         *server.Server
	dir       string
	sandboxID string
}

func newTestServer(t *testing.T) *testServer {
	t.Helper()
	s := &testServer{t: t, dir: filepath.Join(t.TempDir(), "s")}
	eng, err := fake.New(fake.Options{Dir: filepath.Join(t.TempDir(), "run")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(eng.Close)
	s.d, err = server.Open(t.Context(), server.Options{
		StateDir: s.dir, Log: slog.New(slog.DiscardHandler), Engines: fake.Registry(eng), Templates: templates{}, Server: true, Version: "test",
		Settings: sandbox.Settings{AnyBoundary: true}, // the fake engine has no boundary
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.d.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := s.d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	sb, err := s.d.Service.Create(t.Context(), sandbox.Principal{Local: true}, sandbox.CreateRequest{Template: "base", Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	s.sandboxID = sb.ID
	return s
}

// run executes a command line against the server.
func (s *testServer) run(args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	var out, errs bytes.Buffer
	code = s.runTo(s.t.Context(), &out, &errs, args...)
	return code, out.String(), errs.String()
}

func (s *testServer) runTo(ctx context.Context, out, errs interface{ Write([]byte) (int, error) }, args ...string) int {
	lookup := func(name string) (string, bool) {
		if name == "CRANNOG_STATE" {
			return s.dir, true
		}
		return "", false
	}
	return Run(ctx, args, Env{Stdout: out, Stderr: errs, Version: "v9", Config: config.Env{Lookup: lookup, UID: 1000, Home: "/home/someone"}})
}

// question returns an approval request of the sandbox, with texts that contain control characters.
func (s *testServer) question(body string) egress.ApprovalRequest {
	return egress.ApprovalRequest{
		Sandbox: s.sandboxID, Kind: egress.AskRequest, Summary: "POST\x1b[2J a.example.com\nApproved", Rule: policy.RuleUnlisted, Policy: "sha256:p",
		Facts: map[string]string{"host": "a.example.com", "port": "443", "path": "/\u202ex", "body": body},
	}
}

// ask submits a request without waiting for the decision, and returns its ID.
func (s *testServer) ask(q egress.ApprovalRequest) string {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	cancel()
	a, err := s.d.Approvals.Ask(ctx, q)
	if err != nil {
		s.t.Fatal(err)
	}
	return a.Approval
}

func (s *testServer) state(id string) approval.State {
	s.t.Helper()
	a, err := s.d.Approvals.Get(s.t.Context(), approval.Caller{Local: true}, id)
	if err != nil {
		s.t.Fatal(err)
	}
	return a.State
}

func TestApproveAndDeny(t *testing.T) {
	s := newTestServer(t)
	firstID, secondID := s.ask(s.question("1")), s.ask(s.question("2"))
	code, stdout, _ := s.run("approvals")
	if code != 0 || !strings.HasPrefix(stdout, "ID ") || strings.Count(stdout, "\n") != 3 || !strings.Contains(stdout, firstID) || !strings.Contains(stdout, "net.request") {
		t.Errorf("run: got %d, %s", code, stdout)
	}
	code, stdout, _ = s.run("approvals", firstID)
	if code != 0 || !strings.Contains(stdout, "a.example.com") || !strings.Contains(stdout, "would allow a.example.com:443") {
		t.Errorf("run: got %d, %s", code, stdout)
	}
	if code, stdout, stderr := s.run("approve", firstID, "--reason", "fine"); code != 0 || stdout != firstID+"\n" || s.state(firstID) != approval.Approved {
		t.Errorf("run: got %d, %q, %q", code, stdout, stderr)
	}
	if code, stdout, stderr := s.run("deny", secondID, "--reason", "use the mirror", "--json"); code != 0 || !strings.Contains(stdout, `"denied"`) || s.state(secondID) != approval.Denied {
		t.Errorf("run: got %d, %q, %q", code, stdout, stderr)
	}
	if _, stdout, _ := s.run("approvals", "-q"); stdout != "" {
		t.Errorf("decided requests are listed: %s", stdout)
	}
	var rows []api.Approval
	if _, stdout, _ = s.run("approvals", "--all", "--sandbox", "web", "--json"); json.Unmarshal([]byte(stdout), &rows) != nil || len(rows) != 2 {
		t.Errorf("run: got %s", stdout)
	}
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"approve", "a0"}, codeNotFound, "code=approval_not_found"},
		{[]string{"approve", secondID}, codeConflict, "code=approval_over"},
		{[]string{"deny", secondID, "--reason", "x"}, codeConflict, "code=approval_over"},
		{[]string{"deny", firstID}, codeUsage, "code=usage"},
		{[]string{"approve", firstID, "--once", "--always"}, codeUsage, "code=usage"},
		{[]string{"approve"}, codeUsage, "code=usage"},
		{[]string{"approvals", firstID, "--all"}, codeUsage, "code=usage"},
		{[]string{"approvals", "--sandbox", "missing"}, codeNotFound, "code=sandbox_not_found"},
	} {
		code, _, stderr := s.run(test.args...)
		if code != test.code || !strings.Contains(stderr, test.want) || !strings.HasPrefix(stderr, "error: ") {
			t.Errorf("run(%v): got %d, %s", test.args, code, stderr)
		}
	}
	thirdID := s.ask(s.question("3"))
	if _, stdout, _ := s.run("__complete", "approve", ""); !strings.Contains(stdout, thirdID+"\t") || strings.Contains(stdout, firstID) {
		t.Errorf("completion: %s", stdout)
	}
}

// A4: in every output format, a request's text cannot act on the terminal.
func TestApprovalOutputIsInert(t *testing.T) {
	s := newTestServer(t)
	id := s.ask(s.question("\x07\u200b\x9b"))
	for _, args := range [][]string{{"approvals"}, {"approvals", "--json"}, {"approvals", "--jsonl"}, {"approvals", "--format", "{{.summary}}{{.facts}}"}, {"approvals", id}, {"__complete", "deny", ""}} {
		code, stdout, stderr := s.run(args...)
		if code != 0 || !strings.Contains(stdout, "a.example.com") || strings.ContainsAny(stdout, "\x1b\x07\u202e\u200b\u009b") || strings.Contains(stdout, "\nApproved") || strings.Contains(stdout, `\u001b`) {
			t.Errorf("run(%v): got %d, %q, %q", args, code, stdout, stderr)
		}
	}
}

// lineChannel sends each written line to a channel.
type lineChannel struct {
	part bytes.Buffer
	out  chan string
}

func (l *lineChannel) Write(p []byte) (int, error) {
	for _, b := range p {
		if b != '\n' {
			l.part.WriteByte(b)
			continue
		}
		l.out <- l.part.String()
		l.part.Reset()
	}
	return len(p), nil
}

func TestWatchPrintsEvents(t *testing.T) {
	s := newTestServer(t)
	firstID := s.ask(s.question("1"))
	out := &lineChannel{out: make(chan string, 100)}
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	ended := make(chan int, 1)
	go func() { ended <- s.runTo(ctx, out, &bytes.Buffer{}, "approvals", "--watch", "--sandbox", "web") }()
	next := func(want ...string) {
		t.Helper()
		select {
		case line := <-out.out:
			for _, w := range want {
				if !strings.Contains(line, w) || strings.ContainsAny(line, "\x1b\u202e") {
					t.Errorf("watch: got line %q, want %q in it", line, w)
				}
			}
		case <-ctx.Done():
			t.Fatal("watch printed no line in time")
		}
	}
	next("pending", firstID, "net.request")
	if code, _, stderr := s.run("deny", firstID, "--reason", "not today"); code != 0 {
		t.Fatal(stderr)
	}
	next("vote", firstID)
	next("denied", firstID, "not today")
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("approvals --watch: got exit code %d, want 0", code)
	}
}
