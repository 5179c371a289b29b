package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// The test program is also the browser that the tests start: it serves one list of targets, and ends
// as the variable tells it.
const fakeVariable = "CRANNOG_TEST_FAKE_BROWSER"

func TestMain(m *testing.M) {
	switch os.Getenv(fakeVariable) {
	case "serves":
		fakeBrowser()
	case "leaves a process":
		if !slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "--crannog-restart=") }) {
			leaveProcess()
		}
		fakeBrowser()
	case "remains":
		remain()
		os.Exit(0)
	case "fails":
		os.Exit(7)
	}
	os.Exit(m.Run())
}

func fakeBrowser() {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	path := fmt.Sprintf("/devtools/browser/%d", os.Getpid())
	fmt.Fprintf(os.Stderr, "some message\nDevTools listening on ws://%s%s\n", l.Addr(), path)
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // only the tests connect
		switch {
		case r.Host != l.Addr().String():
			http.Error(w, "Host header is specified and is not an IP address or localhost.", http.StatusInternalServerError)
		case r.URL.Path == path:
			_, _ = fmt.Fprint(w, "browser ", os.Getpid())
		case r.URL.Path == "/json/version":
			_, _ = fmt.Fprintf(w, `{"Browser":"fake","webSocketDebuggerUrl":"ws://%s%s","pid":%d}`, l.Addr(), path, os.Getpid())
		case r.URL.Path == "/json/list":
			_, _ = fmt.Fprintf(w, `[{"type":"page","devtoolsFrontendUrl":"x","webSocketDebuggerUrl":"ws://%s/devtools/page/A"}]`, l.Addr())
		default:
			http.NotFound(w, r)
		}
	}))
}

// leaveProcess starts a process outside of the browser's group, which has the browser's output.
func leaveProcess() {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fakeVariable+"=remains")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
}

// remain writes a message, and a last one after a signal.
func remain() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	fmt.Fprintf(os.Stderr, "remains as %d.\n", os.Getpid())
	<-c
	fmt.Fprintln(os.Stderr, "the last message")
}

// output collects what the program prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// start runs a supervisor of the fake browser, with a front, until the test ends.
func start(t *testing.T) (*supervisor, *httptest.Server) {
	t.Helper()
	return startAs(t, "serves")
}

// startAs does it with another fake.
func startAs(t *testing.T, fake string) (*supervisor, *httptest.Server) {
	t.Helper()
	t.Setenv(fakeVariable, fake)
	s := newSupervisor([]string{os.Args[0]}, t.TempDir(), &output{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.keepRunning(ctx) }()
	front := httptest.NewServer(newFront(s, &trust{authority: t.TempDir() + "/none"}))
	t.Cleanup(func() {
		front.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("an orderly end: %v", err)
		}
	})
	return s, front
}

// get requests a path of the front. Headers are pairs of names and values; Host is one of them.
func get(t *testing.T, front *httptest.Server, path string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(data)
}

func addressIn(t *testing.T, body string) string {
	t.Helper()
	var v struct{ WebSocketDebuggerURL string }
	if err := json.Unmarshal([]byte(strings.Trim(body, "[]")), &v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return v.WebSocketDebuggerURL
}

// P80: clients get addresses that they can reach.
func TestAddressesAreThoseOfTheClient(t *testing.T) {
	_, front := start(t)
	host := strings.TrimPrefix(front.URL, "http://")
	for _, c := range []struct {
		path, want string
		headers    []string
	}{
		{"/json/version", "ws://" + host + "/devtools/browser", nil},
		{"/json/version", "wss://49222-i1.sandbox.test/devtools/browser", []string{"Host", "49222-i1.sandbox.test", "X-Forwarded-Proto", "https"}},
		{"/json/version", "ws://" + host + "/secret/devtools/browser", []string{"X-Forwarded-Prefix", "/secret/"}},
		{"/json/list", "ws://" + host + "/devtools/page/A", nil},
	} {
		status, body := get(t, front, c.path, c.headers...)
		if got := addressIn(t, body); status != http.StatusOK || got != c.want {
			t.Errorf("%s %v: got %d, %q, want %q", c.path, c.headers, status, got, c.want)
		}
		if strings.Contains(body, "devtoolsFrontendUrl") {
			t.Errorf("%s: the address of Chromium's frontend is left: %s", c.path, body)
		}
	}
	if status, body := get(t, front, browserPath); status != http.StatusOK || !strings.HasPrefix(body, "browser ") {
		t.Errorf("the stable path: got %d, %q", status, body)
	}
	if err := checkReady(t.Context(), front.URL); err != nil {
		t.Errorf("ready: %v", err)
	}
}

// P79: pages cannot use the port of their own browser.
func TestPagesAreRefused(t *testing.T) {
	_, front := start(t)
	for _, path := range []string{"/json/version", "/json/list", browserPath, StatusPath} {
		for _, h := range [][]string{{"Origin", "http://evil.test"}, {"Origin", "null"}, {"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none"}} {
			if status, body := get(t, front, path, h...); status != http.StatusForbidden {
				t.Errorf("%s with %v: got %d, %q, want 403", path, h, status, body)
			}
		}
		// Node.js sends this header.
		if status, body := get(t, front, path, "Sec-Fetch-Mode", "cors"); status != http.StatusOK {
			t.Errorf("control: %s: got %d, %q, want 200", path, status, body)
		}
	}
}

func pidOf(t *testing.T, front *httptest.Server) (n int) {
	t.Helper()
	_, body := get(t, front, browserPath)
	if _, err := fmt.Sscanf(body, "browser %d", &n); err != nil {
		t.Fatalf("%v: %q", err, body)
	}
	return n
}

// P81: a process that survives the browser, such as a crash handler, holds up no restart, and its
// messages are not lost.
func TestRestartWaitsForNoOtherProcess(t *testing.T) {
	s, front := startAs(t, "leaves a process")
	first := pidOf(t, front)
	out, ok := s.stderr.(*output)
	if !ok {
		t.Fatal("the test has another output")
	}
	var other int
	hosttest.Eventually(t, "the other process runs", func() bool {
		_, rest, found := strings.Cut(out.String(), "remains as ")
		n, _ := fmt.Sscanf(rest, "%d.", &other)
		return found && n == 1
	})
	t.Cleanup(func() { _ = syscall.Kill(other, syscall.SIGKILL) }) // if the test has failed
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if second := pidOf(t, front); second == first {
		t.Errorf("got process %d again", first)
	}
	// The pipe of the first browser is still read.
	if err := syscall.Kill(other, syscall.SIGUSR1); err != nil {
		t.Fatalf("the other process did not remain: %v", err)
	}
	hosttest.Eventually(t, "the last message of the other process", func() bool {
		return strings.Contains(out.String(), "the last message")
	})
}

// P81: a browser that is killed is started again, with the reason.
func TestKilledBrowserReturns(t *testing.T) {
	s, front := start(t)
	pid := func() int { return pidOf(t, front) }
	first := pid()
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The next request may come before the end is noticed. It waits for the next browser.
	if second := pid(); second == first {
		t.Errorf("got process %d again", first)
	}
	got := s.status()
	if !got.Running || got.Starts != 2 || len(got.Ends) != 1 || got.Ends[0].Reason != "signal: killed" {
		t.Errorf("status: got %+v, want a second start because of a signal", got)
	}
	if args := s.arguments(); args[0] != "--crannog-restart=start 3, because the browser ended: signal: killed" {
		t.Errorf("arguments: got %q, want the reason of the restart first", args)
	}
}

// P81: a browser that always ends is not started forever.
func TestRestartsAreBounded(t *testing.T) {
	t.Setenv(fakeVariable, "fails")
	s := newSupervisor([]string{os.Args[0]}, t.TempDir(), &output{})
	err := s.keepRunning(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("got %v, want an error with the last reason", err)
	}
	if got := s.status(); got.Running || got.Starts != maxEnds+1 {
		t.Errorf("status: got %+v, want %d starts", got, maxEnds+1)
	}
	// Ends that are long ago do not count.
	now := time.Now()
	s.now = func() time.Time { return now.Add(endsWithin) }
	if n := s.record("later"); n != 1 {
		t.Errorf("after %s: got %d ends, want 1", endsWithin, n)
	}
}

func TestCertificateIsReplaced(t *testing.T) {
	dir := t.TempDir()
	// A program with the name of NSS's, which writes its arguments.
	script := "#!/bin/sh\necho \"$@\" >>" + dir + "/calls\n"
	if err := os.WriteFile(dir+"/certutil", []byte(script), 0o755); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	tr := &trust{authority: dir + "/crannog.pem", database: "sql:" + dir}
	for _, content := range []string{"", "one", "one", "two", ""} {
		if err := os.Remove(tr.authority); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if content != "" {
			if err := os.WriteFile(tr.authority, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := tr.update(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	add := "-d sql:" + dir + " -A -t C,, -n crannog -i " + dir + "/crannog.pem\n"
	remove := "-d sql:" + dir + " -D -n crannog\n"
	got, err := os.ReadFile(dir + "/calls")
	if want := add + remove + add + remove; err != nil || string(got) != want {
		t.Errorf("calls: %v\ngot\n%swant\n%s", err, got, want)
	}
	if err := os.WriteFile(dir+"/certutil", []byte("#!/bin/sh\necho no >&2; exit 1\n"), 0o755); err != nil { //nolint:gosec // see above
		t.Fatal(err)
	}
	if err := os.WriteFile(tr.authority, []byte("three"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tr.update(t.Context()); err == nil || !strings.Contains(err.Error(), "no") {
		t.Errorf("a failure: got %v, want certutil's message", err)
	}
}
