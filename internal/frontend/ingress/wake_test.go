package ingress_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/ingress"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/signature"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

const pausedID = "i0000000000000000007"

// pausedProxy is a test environment with a second sandbox, paused, that traffic resumes.
func pausedProxy(t *testing.T, change ...func(*sandbox.Sandbox)) *testProxy {
	t.Helper()
	w := newTestProxy(t)
	w.add(pausedID, func(s *sandbox.Sandbox) {
		resumesOnTraffic(s)
		for _, c := range change {
			c(s)
		}
	})
	w.serve(pausedID, guestboot.Port, echoBody("guest"))
	w.serve(pausedID, guestboot.InterpreterPort, echoBody("interpreter"))
	w.serve(pausedID, 3000, echoBody("program"))
	w.pause(pausedID)
	return w
}

// echoBody answers with the request when it has received all of it.
func echoBody(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.Header().Set("X-Reached", name)
		w.Header().Set("X-Uri", r.RequestURI)
		_, _ = w.Write(body)
	})
}

// requestTo makes a request to a port of the second sandbox.
func (w *testProxy) requestTo(t testing.TB, port int, method, path string, headers ...string) *http.Request {
	t.Helper()
	r := w.request(t, port, method, path)
	r.Header.Set("E2b-Sandbox-Id", pausedID)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func wantNotResumed(t testing.TB, w *testProxy, a answer, status int) {
	t.Helper()
	if a.StatusCode != status {
		t.Errorf("%s %s: %d %s, want %d", a.Request.Method, a.Request.URL, a.StatusCode, a.text, status)
	}
	if resumed := w.wakes(); len(resumed) > 0 {
		t.Fatalf("%s %s resumed %v", a.Request.Method, a.Request.URL, resumed)
	}
}

func TestPausedSandboxIsNotFound(t *testing.T) {
	w := pausedProxy(t, func(s *sandbox.Sandbox) { s.OnEnd.Wake = false })
	for _, port := range []int{guestboot.Port, guestboot.InterpreterPort, 3000} {
		a := w.send(t, w.requestTo(t, port, "GET", "/health", "X-Access-Token", "token-"+pausedID))
		wantNotResumed(t, w, a, http.StatusBadGateway)
		wantRefusal(t, a, map[string]any{"sandboxId": pausedID, "message": "The sandbox was not found", "code": 502.0})
	}
}

func TestTrafficResumesSandbox(t *testing.T) {
	for _, c := range []struct {
		port    int
		path    string
		reached string
		headers []string
	}{
		{3000, "/hello?a=b", "program", nil},
		{guestboot.Port, "/health", "guest", []string{"X-Access-Token", "token-" + pausedID}},
		{guestboot.InterpreterPort, "/execute", "interpreter", []string{"X-Access-Token", "token-" + pausedID}},
		{guestboot.InterpreterPort, "/contexts", "interpreter", nil},
	} {
		w := pausedProxy(t)
		body := strings.Repeat("all of it ", 30_000)
		r := w.requestTo(t, c.port, "POST", c.path, c.headers...)
		r.Body = io.NopCloser(strings.NewReader(body))
		a := w.send(t, r)
		if a.Header.Get("X-Reached") != c.reached || a.Header.Get("X-Uri") != c.path || a.text != body {
			t.Errorf("port %d: %d, %d bytes are returned, reached %q at %q", c.port, a.StatusCode, len(a.text), a.Header.Get("X-Reached"), a.Header.Get("X-Uri"))
		}
		if resumed := w.wakes(); len(resumed) != 1 || resumed[0] != pausedID {
			t.Errorf("port %d: resumed are %v", c.port, resumed)
		}
	}
}

// P12: a request without the token that the guest requires cannot resume a sandbox.
func TestTokenIsCheckedBeforeResuming(t *testing.T) {
	w := pausedProxy(t)
	for _, token := range []string{"", "x", "token-" + boxID, "token-" + pausedID + "x"} {
		for _, path := range []string{"/health", "/process.Process/Start", "/files?path=a", "/", "/envs", "/execute"} {
			ports := []int{guestboot.Port}
			if path == "/execute" {
				ports = append(ports, guestboot.InterpreterPort)
			}
			for _, port := range ports {
				headers := []string{}
				if token != "" {
					headers = []string{"X-Access-Token", token}
				}
				a := w.send(t, w.requestTo(t, port, "POST", path, headers...))
				wantNotResumed(t, w, a, http.StatusBadGateway)
				wantRefusal(t, a, map[string]any{"sandboxId": pausedID, "message": "The sandbox was not found"})
			}
		}
	}
	right := "token-" + pausedID
	wantNotResumed(t, w, w.send(t, w.requestTo(t, guestboot.Port, "GET", "/_crannog/ready", "X-Access-Token", right)), http.StatusNotFound)
	if a := w.send(t, w.requestTo(t, guestboot.Port, "GET", "/envs", "X-Access-Token", right)); a.StatusCode != 200 || len(w.wakes()) != 1 {
		t.Fatalf("control: %d %s, resumed %v", a.StatusCode, a.text, w.wakes())
	}
	// An empty token does not resume a sandbox without a token.
	w = pausedProxy(t, func(s *sandbox.Sandbox) { s.AccessToken = "" })
	wantNotResumed(t, w, w.send(t, w.requestTo(t, guestboot.Port, "GET", "/envs", "X-Access-Token", "")), http.StatusBadGateway)
}

func TestPrivatePortsResumeOnlyWithToken(t *testing.T) {
	private := func(s *sandbox.Sandbox) { s.TrafficToken = "secret" }
	w := pausedProxy(t, private)
	for _, port := range []int{3000, guestboot.InterpreterPort, 9} {
		for _, token := range []string{"", "secre", "secrett"} {
			a := w.send(t, w.requestTo(t, port, "GET", "/", "E2b-Traffic-Access-Token", token))
			wantNotResumed(t, w, a, http.StatusForbidden)
		}
	}
	a := w.send(t, w.requestTo(t, 3000, "GET", "/", "E2b-Traffic-Access-Token", "secret"))
	if a.Header.Get("X-Reached") != "program" {
		t.Errorf("control: %d %s", a.StatusCode, a.text)
	}
}

func TestSignedFileURLsResume(t *testing.T) {
	now := time.Now().Unix()
	signed := func(op signature.Op, expires int64) string {
		v := url.Values{"path": {"a.txt"}, "signature": {signature.Sign("a.txt", op, "", "token-"+pausedID, expires)}}
		if expires != 0 {
			v.Set("signature_expiration", fmt.Sprint(expires))
		}
		return "/files?" + v.Encode()
	}
	w := pausedProxy(t)
	for _, path := range []string{
		signed(signature.Write, 0), signed(signature.Read, now-5), "/files?path=a.txt&signature=v1_x",
		strings.Replace(signed(signature.Read, 0), "a.txt", "b.txt", 1), signed(signature.Read, now-5) + "0",
	} {
		wantNotResumed(t, w, w.get(t, "GET", path, ""), http.StatusUnauthorized)
		wantNotResumed(t, w, w.send(t, w.requestTo(t, guestboot.Port, "GET", path)), http.StatusBadGateway)
	}
	for _, path := range []string{signed(signature.Read, 0), signed(signature.Read, now+60)} {
		w := pausedProxy(t)
		if a := w.get(t, "GET", path, ""); a.Header.Get("X-Reached") != "guest" {
			t.Errorf("%s: %d %s", path, a.StatusCode, a.text)
		}
		w = pausedProxy(t)
		if a := w.send(t, w.requestTo(t, guestboot.Port, "GET", path)); a.Header.Get("X-Reached") != "guest" {
			t.Errorf("by headers: %s: %d %s", path, a.StatusCode, a.text)
		}
	}
	w = pausedProxy(t, func(s *sandbox.Sandbox) { s.OnEnd.Wake = false })
	wantNotResumed(t, w, w.get(t, "GET", signed(signature.Read, 0), ""), http.StatusUnauthorized)
}

func TestRequestsShareOneResume(t *testing.T) {
	w := pausedProxy(t)
	release := make(chan struct{})
	w.beforeResume = func(string) error { <-release; return nil }
	const n = 50
	var clients sync.WaitGroup
	for i := range n {
		body := fmt.Sprintf("body %d", i)
		r := w.requestTo(t, 3000, "POST", "/")
		r.Body = io.NopCloser(strings.NewReader(body))
		clients.Go(func() {
			res, err := w.front.Client().Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if got, err := io.ReadAll(res.Body); err != nil || string(got) != body || res.Header.Get("X-Reached") != "program" {
				t.Errorf("%d: %d %q %v", i, res.StatusCode, got, err)
			}
		})
	}
	hosttest.Eventually(t, "all requests wait", func() bool { return w.proxy.Waiting(pausedID) == n })
	close(release)
	clients.Wait()
	if resumed := w.wakes(); len(resumed) != 1 {
		t.Errorf("%d resumes", len(resumed))
	}
	if left := w.proxy.Waiting(pausedID); left != 0 {
		t.Errorf("%d requests still wait", left)
	}
}

// A caller that leaves does not cancel the resume for the others.
func TestFirstWaiterMayLeave(t *testing.T) {
	w := pausedProxy(t)
	release := make(chan struct{})
	w.beforeResume = func(string) error { <-release; return nil }
	conn, _ := w.raw(t, "GET / HTTP/1.1\nHost: 3000-"+pausedID+".x.y\nX-Ignored: %s\n\n")
	hosttest.Eventually(t, "the first request waits", func() bool { return w.proxy.Waiting(pausedID) == 1 })
	done := make(chan answer, 1)
	go func() { done <- w.send(t, w.requestTo(t, 3000, "GET", "/")) }()
	hosttest.Eventually(t, "the second request waits", func() bool { return w.proxy.Waiting(pausedID) == 2 })
	conn.Close()
	hosttest.Eventually(t, "the first request leaves", func() bool { return w.proxy.Waiting(pausedID) == 1 })
	close(release)
	if a := <-done; a.Header.Get("X-Reached") != "program" || len(w.wakes()) != 1 {
		t.Errorf("%d %s, resumed %v", a.StatusCode, a.text, w.wakes())
	}
}

func TestFailedResume(t *testing.T) {
	for kind, status := range map[fault.Kind]int{
		fault.Conflict: 409, fault.Exhausted: 429, fault.Unavailable: 503, fault.Timeout: 504, fault.Unsupported: 501,
		fault.Internal: 500, fault.Invalid: 500, fault.NotFound: 502,
	} {
		w := pausedProxy(t)
		w.beforeResume = func(string) error { return fault.Wrap(errors.New("cause"), kind, "code", "what only the log may tell") }
		started := time.Now()
		for range 3 {
			a := w.send(t, w.requestTo(t, 3000, "GET", "/"))
			wantRefusal(t, a, map[string]any{"sandboxId": pausedID, "code": float64(status)})
			if strings.Contains(a.text, "only the log") || strings.Contains(a.text, "cause") {
				t.Errorf("%s: a caller gets %s", kind, a.text)
			}
		}
		// The guest's clients read the guest's own format.
		a := w.send(t, w.requestTo(t, guestboot.Port, "POST", "/process.Process/List", "X-Access-Token", "token-"+pausedID, "Content-Type", "application/json"))
		if a.StatusCode != status || kind != fault.NotFound && !strings.Contains(a.text, `"code":"`) {
			t.Errorf("%s: a call gets %d %s", kind, a.StatusCode, a.text)
		}
		// A resume that failed a moment ago is not retried at once. A lookup that failed is,
		// because the sandbox may have returned.
		limit := 1 + int(time.Since(started)/ingress.ResumePause)
		if n := len(w.wakes()); kind == fault.NotFound && n < 4 || kind != fault.NotFound && (n < 1 || n > limit) {
			t.Errorf("%s: %d resumes, of at most %d", kind, n, limit)
		}
	}
}

func TestFailedResumeIsRetriedLater(t *testing.T) {
	w := pausedProxy(t)
	var tries int
	w.beforeResume = func(string) error {
		if tries++; tries == 1 {
			return fault.New(fault.Unavailable, "busy", "try again")
		}
		return nil
	}
	hosttest.Eventually(t, "the sandbox is resumed", func() bool { return w.send(t, w.requestTo(t, 3000, "GET", "/")).StatusCode == 200 })
	if n := len(w.wakes()); n != 2 {
		t.Errorf("%d resumes", n)
	}
}

func TestConcurrentlyResumedSandboxIsReached(t *testing.T) {
	w := pausedProxy(t, func(s *sandbox.Sandbox) { s.OnEnd.Wake = false })
	w.afterFailedLookup = func() {
		w.afterFailedLookup = nil
		if _, err := w.Wake(t.Context(), pausedID); err != nil {
			t.Error(err)
		}
	}
	if a := w.send(t, w.requestTo(t, 3000, "GET", "/")); a.Header.Get("X-Reached") != "program" {
		t.Errorf("request: got %d %s", a.StatusCode, a.text)
	}
}

func TestPreflightDoesNotResume(t *testing.T) {
	w := pausedProxy(t)
	r := w.requestTo(t, guestboot.Port, "OPTIONS", "/process.Process/Start", "Origin", "https://app.example",
		"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,x-access-token")
	a := w.send(t, r)
	wantNotResumed(t, w, a, http.StatusNoContent)
	if a.Header.Get("Access-Control-Allow-Origin") != "*" || a.Header.Get("Access-Control-Allow-Headers") != "authorization,x-access-token" {
		t.Errorf("headers of the preflight answer: got %v", a.Header)
	}
	wantNotResumed(t, w, w.send(t, w.requestTo(t, guestboot.Port, "OPTIONS", "/")), http.StatusBadGateway)
}

func TestCloseEndsWaitingRequests(t *testing.T) {
	w := pausedProxy(t)
	never := make(chan struct{})
	defer close(never)
	w.beforeResume = func(string) error { <-never; return nil }
	done := make(chan answer, 1)
	go func() { done <- w.send(t, w.requestTo(t, 3000, "GET", "/")) }()
	hosttest.Eventually(t, "the request waits", func() bool { return w.proxy.Waiting(pausedID) == 1 })
	w.proxy.Close()
	wantRefusal(t, <-done, map[string]any{"message": "The sandbox was not found", "code": 502.0})
}
