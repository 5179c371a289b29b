package crannog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestSandboxLifeCycle(t *testing.T) {
	c := newStack(t)
	sb, err := c.Create(t.Context(), Name("one"), Metadata(map[string]string{"k": "v"}), Timeout(time.Minute), Env(map[string]string{"S": "secret"}))
	if err != nil {
		t.Fatal(err)
	}
	info := sb.Info()
	if info.Name != "one" || info.State != "running" || info.EndsAt == nil || info.AccessToken == "" || info.Boundary != "none" {
		t.Errorf("Info: got %+v", info)
	}
	if info.Effective.MemoryBytes == 0 || info.Effective.Enforced == nil {
		t.Errorf("limits: %+v", info.Effective)
	}
	if len(info.EnvNames) != 1 || info.EnvNames[0] != "S" {
		t.Errorf("env: %v", info.EnvNames)
	}
	for _, ref := range []string{"one", sb.ID(), sb.ID()[:8]} {
		if found, err := c.Get(t.Context(), ref); err != nil || found.ID() != sb.ID() {
			t.Errorf("get %s: %v", ref, err)
		}
	}
	if err := sb.SetTimeout(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	end := *sb.Info().EndsAt
	if err := sb.Extend(t.Context(), time.Minute); err != nil || !sb.Info().EndsAt.Equal(end) {
		t.Errorf("extend moved the end from %v to %v: %v", end, sb.Info().EndsAt, err)
	}
	list, err := c.List(t.Context(), ListOptions{Metadata: map[string]string{"k": "v"}})
	if err != nil || len(list) != 1 || list[0].AccessToken != "" {
		t.Errorf("List: got %+v, error %v", list, err)
	}
	if list, err := c.List(t.Context(), ListOptions{Metadata: map[string]string{"k": "w"}}); err != nil || len(list) != 0 {
		t.Errorf("List with another label: got %v, error %v", list, err)
	}
	if logs, err := sb.Logs(t.Context()); err != nil || len(logs) == 0 {
		t.Errorf("Logs: got %v, error %v", logs, err)
	}
	if err := sb.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := sb.Refresh(t.Context()); err == nil && sb.Info().State == "running" {
		t.Error("the sandbox runs after Kill")
	}
	if err := sb.Command("true").Run(); err == nil {
		t.Error("a command runs in a sandbox that has ended")
	}
}

func TestListPages(t *testing.T) {
	c := newStack(t)
	for range 3 {
		if _, err := c.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var page api.SandboxList
	if err := c.call(t.Context(), http.MethodGet, "/sandboxes?limit=2", nil, &page); err != nil || len(page.Sandboxes) != 2 || page.NextCursor == "" || page.Running != 3 {
		t.Fatalf("the first page: got %+v, error %v", page, err)
	}
	var lastPage api.SandboxList
	if err := c.call(t.Context(), http.MethodGet, "/sandboxes?limit=2&cursor="+page.NextCursor, nil, &lastPage); err != nil || len(lastPage.Sandboxes) != 1 || lastPage.NextCursor != "" {
		t.Fatalf("the last page: got %+v, error %v", lastPage, err)
	}
}

func TestExec(t *testing.T) {
	sb := newSandbox(t)
	for name, test := range map[string]struct {
		in   api.Exec
		want api.ExecResult
	}{
		"plain":   {api.Exec{Cmd: []string{"sh", "-c", "cat; echo e >&2; exit 4"}, Stdin: "in"}, api.ExecResult{ExitCode: 4, Stdout: "in", Stderr: "e\n"}},
		"timeout": {api.Exec{Cmd: []string{"sleep", "60"}, TimeoutSeconds: 0.1}, api.ExecResult{ExitCode: 124, Hit: api.HitTimeout}},
		"output":  {api.Exec{Cmd: []string{"echo", "0123456789"}, OutputBytes: 4}, api.ExecResult{Stdout: "0123", Truncated: true, Hit: api.HitOutput}},
		"disk":    {api.Exec{Cmd: []string{"sh", "-c", "echo 'x: No space left on device' >&2; exit 1"}}, api.ExecResult{ExitCode: 1, Stderr: "x: No space left on device\n", Hit: api.HitDiskFull}},
		"success": {api.Exec{Cmd: []string{"sh", "-c", "echo 'No space left on device' >&2"}}, api.ExecResult{Stderr: "No space left on device\n"}},
		// F10: arguments, variables and input may contain any bytes.
		"any byte": {api.Exec{Cmd: []string{"sh", "-c", `printf '%s' "$1$A" | od -An -tx1 | tr -d '\n'; od -An -tx1`, "sh", "a\xff"}, Env: map[string]string{"A": "\xfe"}, Stdin: "\x80"}, api.ExecResult{Stdout: " 61 ff fe 80\n"}},
		"bytes":    {api.Exec{Cmd: []string{"printf", `a\377b`}}, api.ExecResult{Stdout: "a\uFFFDb"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := sb.Exec(t.Context(), test.in)
			got.DurationMS = 0
			// The newest tree head is returned; there is none at the very beginning.
			if c := got.Checkpoint; c != nil && (c.Size == 0 || c.Note == "") {
				t.Errorf("Exec: got tree head %+v, want a size and a note", c)
			}
			got.Checkpoint = nil
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("Exec: got %+v, error %v, want %+v", got, err, test.want)
			}
		})
	}
	for _, bad := range []api.Exec{{}, {Cmd: []string{""}}, {Cmd: []string{"no-such-program"}}, {Cmd: []string{"true"}, TimeoutSeconds: -1}, {Cmd: []string{"true"}, Cwd: "/no/dir"}} {
		if _, err := sb.Exec(t.Context(), bad); !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrNotFound) {
			t.Errorf("Exec(%+v): error %v", bad, err)
		}
	}
}

// Exec kills its command when the caller's context ends.
func TestExecKillsCommandOnCancel(t *testing.T) {
	sb := newSandbox(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := sb.Exec(ctx, api.Exec{Cmd: []string{"sleep", "60"}})
		done <- err
	}()
	waitProcesses(t, sb, 1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Exec: error %v", err)
	}
	waitProcesses(t, sb, 0)
}

// waitProcesses waits until n processes run in the sandbox.
func waitProcesses(t *testing.T, sb *Sandbox, n int) {
	t.Helper()
	hosttest.EventuallyNoError(t, func() error {
		list, err := sb.Processes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != n {
			return fmt.Errorf("got %d processes, want %d", len(list), n)
		}
		return nil
	})
}

func TestRunCode(t *testing.T) {
	sb := newSandbox(t)
	var out strings.Builder
	var result, failure string
	for _, code := range []string{"x = 6*7\nprint('hi')\nx", "1/0"} {
		for event, err := range sb.RunCode(t.Context(), code) {
			if err != nil {
				t.Fatal(err)
			}
			switch event.Type {
			case "stdout":
				out.WriteString(event.Text)
			case "result":
				result = event.Text
			case "error":
				failure = event.Name
			}
		}
	}
	if out.String() != "hi\n" || result != "42" || failure != "ZeroDivisionError" {
		t.Errorf("RunCode: got output %q, result %q, error %q", out.String(), result, failure)
	}
}

func TestHTTPClient(t *testing.T) {
	sb := newSandbox(t)
	client := sb.HTTPClient()
	resp, err := client.Get("http://localhost:8080/x")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "from inside" {
		t.Errorf("ReadAll: got %q, error %v", body, err)
	}
	if got := resp.Header.Get("Seen-Token"); got != "" {
		t.Error("a program inside saw the access token")
	}
	if _, err := client.Get("http://example.com/"); err == nil {
		t.Error("a request to another host succeeded")
	}
	redirect, err := client.Get("http://localhost:8080/away")
	if err != nil {
		t.Fatal(err)
	}
	defer redirect.Body.Close()
	if redirect.StatusCode != http.StatusFound {
		t.Errorf("a redirect to another host was followed: %s", redirect.Status)
	}
	closed, err := client.Get("http://localhost:9/")
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Body.Close()
	if closed.StatusCode != http.StatusBadGateway {
		t.Errorf("a closed port answers %s", closed.Status)
	}
}

func TestResponseErrors(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		body   string
		kind   error
		code   string
	}{
		"API":   {404, `{"kind":"not_found","code":"sandbox_not_found","title":"x","detail":"gone","status":404}`, ErrNotFound, "sandbox_not_found"},
		"proxy": {502, `{"sandboxId":"i","message":"The sandbox was not found","code":502}`, ErrUnavailable, "unavailable"},
		"html":  {403, `<html>`, ErrDenied, "denied"},
		"empty": {500, ``, ErrInternal, "internal"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}))
			defer srv.Close()
			c, err := New(URL(srv.URL))
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Get(t.Context(), "x")
			if !errors.Is(err, test.kind) || Code(err) != test.code {
				t.Errorf("Get: error %v, got %q", err, Code(err))
			}
		})
	}
}

func TestUnreachableServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := New(URL("http://" + addr))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Version(t.Context()); !errors.Is(err, ErrUnavailable) || Code(err) != "server_unreachable" {
		t.Errorf("Version: error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Version(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Version: error %v", err)
	}
}

// A reference with special characters must not become another route.
func TestReferencesAreEscaped(t *testing.T) {
	c := newStack(t)
	for _, ref := range []string{"", ".", "..", "../keys", "a/b", "x?state=all", "a#b", "%2e%2e", "\x00", strings.Repeat("a", 300)} {
		if _, err := c.Get(t.Context(), ref); !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrInvalid) {
			t.Errorf("Get(%q): error %v", ref, err)
		}
	}
}

func TestNewOptions(t *testing.T) {
	for _, base := range []string{"", "localhost:7070", "ftp://x", "http://"} {
		if _, err := New(URL(base)); err == nil {
			t.Errorf("%q was accepted as a URL", base)
		}
	}
	t.Setenv("CRANNOG_URL", "")
	t.Setenv("E2B_API_URL", "http://127.0.0.1:1/")
	t.Setenv("E2B_API_KEY", "e2b_1")
	c, err := New(FromEnv())
	if err != nil || c.base != "http://127.0.0.1:1" || c.key != "e2b_1" {
		t.Errorf("New: got %+v, error %v", c, err)
	}
}

func TestLocalRequiresMain(t *testing.T) {
	_, err := Local(t.Context(), State(t.TempDir()))
	if Code(err) != "main_not_called" {
		t.Errorf("Local: error %v", err)
	}
}

// Errors of the local socket do not name an address where no server listens.
func TestSocketErrorsOmitAddress(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	c, err := New(Socket(socket))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Version(t.Context()); err == nil || strings.Contains(err.Error(), "127.0.0.1") || !strings.Contains(err.Error(), socket) {
		t.Errorf("Version: error %v", err)
	}
}
