package interpreter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/guest/census"
)

const testToken = "token-of-the-test"

// plainStarter starts workers as the user of the test.
type plainStarter struct{}

type plainProcess struct{ cmd *exec.Cmd }

func (plainStarter) Start(cmd *exec.Cmd) (Process, error) {
	return plainProcess{cmd}, cmd.Start()
}

func (p plainProcess) Signal(sig syscall.Signal) error { return syscall.Kill(-p.cmd.Process.Pid, sig) }

func (p plainProcess) Family() ([]census.Member, error) {
	return census.Family("/proc", p.cmd.Process.Pid, nil)
}

func (p plainProcess) pid() string { return strconv.Itoa(p.cmd.Process.Pid) }

func (p plainProcess) Wait() Exit {
	_ = p.cmd.Wait() // the result is in ProcessState
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return Exit{Signal: status.Signal()}
	}
	return Exit{Code: status.ExitStatus()}
}

// testServer is a server with a client, on a Unix socket.
type testServer struct {
	t      testing.TB
	server *Server
	home   string
	mu     sync.Mutex
	env    map[string]string
	http   *http.Client
}

func newTestServer(t testing.TB) *testServer {
	t.Helper()
	home := t.TempDir()
	b := &testServer{t: t, home: home, env: map[string]string{
		"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home, "USER": "user", "LANG": "C.UTF-8",
	}}
	b.server = New(Options{
		Starter: plainStarter{}, Home: home,
		Env:         b.environ,
		AccessToken: func() string { return testToken },
		Log:         slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: b.server, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(listener) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	b.http = &http.Client{Transport: transport}
	t.Cleanup(func() {
		b.server.Close()
		transport.CloseIdleConnections()
		_ = srv.Close()
		<-done
	})
	return b
}

func (b *testServer) environ() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.env
}

func (b *testServer) setEnv(env map[string]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.env = env
}

func (b *testServer) dropEnv(name string) {
	env := maps.Clone(b.environ())
	delete(env, name)
	b.setEnv(env)
}

// line is a line of an answer, with the fields of all types.
type line struct {
	Type      string          `json:"type"`
	Count     int             `json:"execution_count"`
	Text      string          `json:"text"`
	Timestamp string          `json:"timestamp"`
	Name      string          `json:"name"`
	Value     string          `json:"value"`
	Traceback string          `json:"traceback"`
	HTML      string          `json:"html"`
	Markdown  string          `json:"markdown"`
	SVG       string          `json:"svg"`
	PNG       string          `json:"png"`
	JPEG      string          `json:"jpeg"`
	LaTeX     string          `json:"latex"`
	JSON      json.RawMessage `json:"json"`
	Data      json.RawMessage `json:"data"`
	Chart     json.RawMessage `json:"chart"`
	Extra     json.RawMessage `json:"extra"`
	IsMain    *bool           `json:"is_main_result"`
}

// outcome is the result of one execution.
type outcome struct {
	lines          []line
	stdout, stderr string
	results        []line
	err            *line
	count          int
}

// text returns the text of the main result.
func (o outcome) text() string {
	for _, r := range o.results {
		if r.IsMain != nil && *r.IsMain {
			return r.Text
		}
	}
	return ""
}

// payload is the body of a request.
type payload map[string]any

// do sends a request.
func (b *testServer) do(ctx context.Context, method, path string, body any, token string) *http.Response {
	b.t.Helper()
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			b.t.Fatal(err)
		}
		in = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://box"+path, in)
	if err != nil {
		b.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("X-Access-Token", token)
	}
	resp, err := b.http.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp
}

// call makes a request and returns its status and body.
func (b *testServer) call(method, path string, body any) (int, string) {
	b.t.Helper()
	resp := b.do(b.t.Context(), method, path, body, testToken)
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// run executes code, and checks properties of every answer.
func (b *testServer) run(body payload) outcome {
	b.t.Helper()
	resp := b.do(b.t.Context(), "POST", "/execute", body, testToken)
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != 200 {
		data, _ := io.ReadAll(resp.Body)
		b.t.Fatalf("execute: status %d: %s", resp.StatusCode, data)
	}
	var o outcome
	lines := bufio.NewReader(resp.Body)
	for {
		text, err := lines.ReadString('\n')
		if err == io.EOF && text == "" {
			break
		}
		if err != nil {
			b.t.Fatalf("read: %v after %q", err, text)
		}
		o.add(b.t, text)
	}
	if n := len(o.lines); n == 0 || o.lines[n-1].Type != "end_of_execution" {
		b.t.Fatalf("the last line is not end_of_execution: %+v", o.lines)
	}
	return o
}

// add adds a line of the answer.
func (o *outcome) add(t testing.TB, text string) {
	t.Helper()
	var l line
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		t.Fatalf("line %q: %v", text, err)
	}
	o.lines = append(o.lines, l)
	switch l.Type {
	case "stdout":
		o.stdout += l.Text
	case "stderr":
		o.stderr += l.Text
	case "result":
		o.results = append(o.results, l)
	case "error":
		if o.err != nil {
			t.Errorf("two error lines: %+v and %+v", o.err, l)
		}
		o.err = &l
	case "number_of_executions":
		o.count = l.Count
	}
}

// python runs Python code.
func (b *testServer) python(code string) outcome {
	b.t.Helper()
	return b.run(payload{"code": code})
}

// wantOK fails the test if the code failed.
func (o outcome) wantOK(t *testing.T) outcome {
	t.Helper()
	if o.err != nil {
		t.Fatalf("error %s: %s\n%s\nstderr: %s", o.err.Name, o.err.Value, o.err.Traceback, o.stderr)
	}
	return o
}

// contains fails the test if text lacks one of the parts.
func contains(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%s lacks %q:\n%s", what, p, text)
		}
	}
}
