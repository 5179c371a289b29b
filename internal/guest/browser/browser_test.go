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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The test program is also the browser that the tests start: it serves one list of targets, and ends
// as the variable tells it.
const fakeVariable = "CRANNOG_TEST_FAKE_BROWSER"

func TestMain(m *testing.M) {
	switch os.Getenv(fakeVariable) {
	case "serves":
		fakeBrowser()
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
	t.Setenv(fakeVariable, "serves")
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

// P81: a browser that is killed is started again, with the reason.
func TestKilledBrowserReturns(t *testing.T) {
	s, front := start(t)
	pid := func() (n int) {
		_, body := get(t, front, browserPath)
		if _, err := fmt.Sscanf(body, "browser %d", &n); err != nil {
			t.Fatalf("%v: %q", err, body)
		}
		return n
	}
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
