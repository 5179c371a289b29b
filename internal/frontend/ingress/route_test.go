package ingress_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/guest/signature"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

type answer struct {
	*http.Response
	text string
}

func (w *testProxy) send(t testing.TB, r *http.Request) answer {
	t.Helper()
	res, err := w.front.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res, string(text)}
}

// get sends a request with a Host and headers.
func (w *testProxy) get(t testing.TB, method, path, host string, headers ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, w.front.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		r.Host = host
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return w.send(t, r)
}

func wantRefusal(t testing.TB, a answer, want map[string]any) {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal([]byte(a.text), &got); err != nil {
		t.Fatalf("%d %q: %v", a.StatusCode, a.text, err)
	}
	if float64(a.StatusCode) != got["code"] {
		t.Errorf("status %d, body %s", a.StatusCode, a.text)
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s = %v, want %v (%s)", k, got[k], v, a.text)
		}
	}
}

func TestRouting(t *testing.T) {
	w := newTestProxy(t)
	const id, port = "E2b-Sandbox-Id", "E2b-Sandbox-Port"
	for _, c := range []struct {
		name, host string
		headers    []string
		reached    string // or "" and
		message    string // a refusal's text, or "" for the control plane
	}{
		{"headers guest", "", []string{id, boxID, port, "49983"}, "guest", ""},
		{"headers program", "", []string{id, boxID, port, "3000"}, "program", ""},
		{"headers on any host", "sandbox.example.com", []string{id, boxID, port, "3000"}, "program", ""},
		{"host", "3000-" + boxID + ".sbx.example", nil, "program", ""},
		{"host with port", "3000-" + boxID + ".sbx.example:8443", nil, "program", ""},
		{"host in capitals", strings.ToUpper("3000-" + boxID + ".sbx.example"), nil, "program", ""},
		{"host with client ID", "49983-" + boxID + "-client1.sbx.example", nil, "guest", ""},
		{"host on localhost", "3000-" + boxID + ".localhost", nil, "program", ""},
		{"host wins over headers", "3000-" + boxID + ".x.y", []string{id, "other", port, "49983"}, "program", ""},
		{"only the ID", "", []string{id, boxID}, "", "missing header"},
		{"only the port", "", []string{port, "3000"}, "", "missing header"},
		{"empty ID", "", []string{id, "", port, "3000"}, "", "missing header"},
		{"two IDs", "", []string{id, boxID, id, "other", port, "3000"}, "", "missing header"},
		{"port zero", "", []string{id, boxID, port, "0"}, "", "Invalid sandbox port"},
		{"port too large", "", []string{id, boxID, port, "65536"}, "", "Invalid sandbox port"},
		{"port signed", "", []string{id, boxID, port, "+80"}, "", "Invalid sandbox port"},
		{"port text", "", []string{id, boxID, port, "http"}, "", "Invalid sandbox port"},
		{"ID capital", "", []string{id, "I1", port, "80"}, "", "Invalid sandbox ID"},
		{"ID path", "", []string{id, "../x", port, "80"}, "", "Invalid sandbox ID"},
		{"ID hyphen", "", []string{id, boxID + "-x", port, "80"}, "", "Invalid sandbox ID"},
		{"host port too large", "99999-" + boxID + ".x.y", nil, "", "Invalid sandbox port"},
		{"plain host", "api.example.com", nil, "", ""},
		{"no dot", "3000-" + boxID, nil, "", ""},
		{"IP", "127.0.0.1", nil, "", ""},
		{"IPv6", "[::1]:80", nil, "", ""},
		{"name with a hyphen", "my-host.example", nil, "", ""},
		{"no ID", "3000-.example", nil, "", ""},
		{"no port", "-" + boxID + ".example", nil, "", ""},
		{"only digits", "3000.example", nil, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := w.get(t, "GET", "/hello?a=b", c.host, c.headers...)
			switch {
			case c.message != "":
				wantRefusal(t, a, map[string]any{"message": c.message, "code": 400.0})
			case c.reached == "":
				if a.Header.Get("X-Control-Plane") == "" {
					t.Errorf("not the control plane: %d %s", a.StatusCode, a.text)
				}
			case a.Header.Get("X-Reached") != c.reached || a.Header.Get("X-Uri") != "/hello?a=b":
				t.Errorf("reached %q with %q, want %q: %d %s", a.Header.Get("X-Reached"), a.Header.Get("X-Uri"), c.reached, a.StatusCode, a.text)
			}
		})
	}
}

func TestUnknownSandboxAndClosedPort(t *testing.T) {
	w := newTestProxy(t)
	const unknown = "izzzzzzzzzzzzzzzzzzz"
	a := w.get(t, "GET", "/", "", "E2b-Sandbox-Id", unknown, "E2b-Sandbox-Port", "49983")
	wantRefusal(t, a, map[string]any{"sandboxId": unknown, "message": "The sandbox was not found", "code": 502.0})

	before := w.dials.Load()
	a = w.get(t, "GET", "/", "", "E2b-Sandbox-Id", boxID, "E2b-Sandbox-Port", "4000")
	wantRefusal(t, a, map[string]any{"sandboxId": boxID, "port": 4000.0, "code": 502.0,
		"message": "The sandbox is running but port is not open"})
	if tries := w.dials.Load() - before; tries != 5 {
		t.Errorf("%d dials, want 5", tries)
	}
}

func TestLateListenerIsReached(t *testing.T) {
	w := newTestProxy(t)
	done := make(chan answer, 1)
	go func() { done <- w.send(t, w.request(t, 4000, "GET", "/")) }()
	hosttest.Eventually(t, "a first dial", func() bool { return w.dials.Load() > 0 })
	w.serve(boxID, 4000, echo("late"))
	if a := <-done; a.Header.Get("X-Reached") != "late" {
		t.Errorf("request to the late program: got %d %s", a.StatusCode, a.text)
	}
}

func TestBrowsersGetAPage(t *testing.T) {
	w := newTestProxy(t)
	host := "3000-izzzzzzzzzzzzzzzzzzz.x.y"
	for _, headers := range [][]string{
		{"Accept", "text/html,application/xhtml+xml,*/*;q=0.8"},
		{"Accept", "*/*", "Sec-Fetch-Mode", "navigate"},
	} {
		a := w.get(t, "GET", "/<script>", host, headers...)
		if a.StatusCode != 502 || !strings.Contains(a.Header.Get("Content-Type"), "text/html") ||
			!strings.Contains(a.text, "The sandbox was not found") || strings.Contains(a.text, "<script>") {
			t.Errorf("%v: %d %s", headers, a.StatusCode, a.text)
		}
	}
	a := w.get(t, "GET", "/", host, "Accept", "text/html", "Sec-Fetch-Mode", "cors")
	wantRefusal(t, a, map[string]any{"code": 502.0})
}

func TestSignedFileURLsFindTheirSandbox(t *testing.T) {
	w := newTestProxy(t)
	w.add("i2", func(s *sandbox.Sandbox) { s.AccessToken = "second" })
	w.serve("i2", 49983, echo("second"))
	w.add("i3", func(s *sandbox.Sandbox) { s.AccessToken = "" })
	end := time.Now().Add(time.Hour).Unix()
	query := func(path, user, sig string, expires int64) string {
		v := url.Values{"path": {path}, "signature": {sig}}
		if user != "" {
			v.Set("username", user)
		}
		if expires != 0 {
			v.Set("signature_expiration", strconv.FormatInt(expires, 10))
		}
		return "/files?" + v.Encode()
	}
	for _, c := range []struct {
		name, method, url, reached string
	}{
		{"read", "GET", query("a b.txt", "user", signature.Sign("a b.txt", signature.Read, "user", "second", end), end), "second"},
		{"head", "HEAD", query("a", "", signature.Sign("a", signature.Read, "", "second", 0), 0), "second"},
		{"write", "POST", query("a", "", signature.Sign("a", signature.Write, "", "second", 0), 0), "second"},
		{"preflight", "OPTIONS", query("a", "", signature.Sign("a", signature.Write, "", "second", 0), 0), "second"},
		{"expired, rejected by the guest", "GET", query("a", "", signature.Sign("a", signature.Read, "", "second", 9), 9), "second"},
		{"first", "GET", query("", "", signature.Sign("", signature.Read, "", "token-"+boxID, 0), 0), "guest"},
		{"read signature for a write", "POST", query("a", "", signature.Sign("a", signature.Read, "", "second", 0), 0), ""},
		{"another path", "GET", query("b", "", signature.Sign("a", signature.Read, "", "second", 0), 0), ""},
		{"another user", "GET", query("a", "root", signature.Sign("a", signature.Read, "", "second", 0), 0), ""},
		{"end added", "GET", query("a", "", signature.Sign("a", signature.Read, "", "second", 0), end), ""},
		{"end dropped", "GET", query("a", "", signature.Sign("a", signature.Read, "", "second", end), 0), ""},
		{"a sandbox without token", "GET", query("a", "", signature.Sign("a", signature.Read, "", "", 0), 0), ""},
		{"end zero", "GET", query("a", "", signature.Sign("a", signature.Read, "", "second", 0), 0) + "&signature_expiration=0", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := w.get(t, c.method, c.url, "")
			if c.reached == "" {
				wantRefusal(t, a, map[string]any{"message": "invalid signature", "code": 401.0})
				return
			}
			if a.Header.Get("X-Reached") != c.reached || a.Header.Get("X-Uri") != c.url {
				t.Errorf("reached %q with %q: %d %s", a.Header.Get("X-Reached"), a.Header.Get("X-Uri"), a.StatusCode, a.text)
			}
		})
	}
	wantRefusal(t, w.get(t, "GET", "/files?path=a", ""), map[string]any{"message": "missing signature query parameter", "code": 401.0})
	wantRefusal(t, w.get(t, "GET", "/files?path=%zz", ""), map[string]any{"code": 400.0})
	for _, other := range []string{"/files/", "/files/compose", "/filesystem"} {
		if a := w.get(t, "GET", other, ""); a.Header.Get("X-Control-Plane") == "" {
			t.Errorf("%s without headers is not routed to the control plane", other)
		}
	}
	if a := w.get(t, "DELETE", "/files", ""); a.Header.Get("X-Control-Plane") == "" {
		t.Error("DELETE /files is not routed to the control plane")
	}
}

func TestPrivatePortsNeedToken(t *testing.T) {
	w := newTestProxy(t)
	w.add("i2", func(s *sandbox.Sandbox) { s.TrafficToken = "secret" })
	w.serve("i2", 3000, echo("program"))
	w.serve("i2", 49983, echo("guest"))
	w.serve("i2", 49999, echo("interpreter"))
	for _, c := range []struct {
		port, token string
		status      int
	}{
		{"3000", "secret", 200}, {"3000", "", 403}, {"3000", "secre", 403}, {"3000", "secrett", 403},
		{"49999", "secret", 200}, {"49999", "", 403}, {"49983", "", 200},
	} {
		headers := []string{"E2b-Sandbox-Id", "i2", "E2b-Sandbox-Port", c.port}
		if c.token != "" {
			headers = append(headers, "E2b-Traffic-Access-Token", c.token)
		}
		a := w.get(t, "GET", "/", "", headers...)
		if a.StatusCode != c.status {
			t.Errorf("port %s, token %q: %d %s", c.port, c.token, a.StatusCode, a.text)
		}
		if c.status == 403 {
			wantRefusal(t, a, map[string]any{"sandboxId": "i2", "code": 403.0})
		}
	}
}

// P79: the browser's port needs the sandbox's own token, also if its ports are public, and the token does
// not reach the program inside.
func TestBrowserNeedsToken(t *testing.T) {
	w := newTestProxy(t)
	w.add("public", func(s *sandbox.Sandbox) { s.AccessToken = "secret" })
	w.add("private", func(s *sandbox.Sandbox) { s.AccessToken, s.TrafficToken = "secret", "traffic" })
	w.add("none", func(s *sandbox.Sandbox) { s.AccessToken = "" })
	for _, id := range []string{"public", "private", "none"} {
		w.serve(id, 49222, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "seen "+r.Header.Get("X-Access-Token"))
		}))
	}
	for _, c := range []struct {
		id, header, token string
		status            int
	}{
		{"public", "X-Access-Token", "secret", 200}, {"public", "X-Access-Token", "", 403}, {"public", "X-Access-Token", "secre", 403},
		{"private", "X-Access-Token", "secret", 200}, {"private", "E2b-Traffic-Access-Token", "traffic", 403},
		{"none", "X-Access-Token", "", 403},
	} {
		headers := []string{"E2b-Sandbox-Id", c.id, "E2b-Sandbox-Port", "49222"}
		if c.token != "" {
			headers = append(headers, c.header, c.token)
		}
		for _, path := range []string{"/", "/json/version", "/devtools/browser"} {
			a := w.get(t, "GET", path, "", headers...)
			if a.StatusCode != c.status || c.status == 200 && a.text != "seen " {
				t.Errorf("%s, %s %q, %s: got %d %q, want %d", c.id, c.header, c.token, path, a.StatusCode, a.text, c.status)
			}
		}
	}
}
