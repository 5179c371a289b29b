package ingress_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/signature"
	"github.com/crannog/crannog/internal/sandbox"
)

// TestReservedPathsAreNotReachable checks that no spelling of a path reaches the guest's control
// service (P12).
func TestReservedPathsAreNotReachable(t *testing.T) {
	w := newTestProxy(t)
	for _, path := range []string{
		"/_crannog/ready", "/_crannog", "/_crannog/", "/_crannog/update", "//_crannog/ready", "/./_crannog/ready",
		"/x/../_crannog/ready", "/files/../_crannog/ready", "/../_crannog/ready", "/%5fcrannog/ready", "/_crannog%2fready",
		"/%2f_crannog/ready", "/x/%2e%2e/_crannog/ready", "/%255fcrannog/ready", "/%25255fcrannog/ready", "/_CRANNOG/ready",
		"/_Crannog/ready", "/\\_crannog/ready", "/%5c_crannog/ready", "/_crannog%00/ready", "/%20_crannog/ready",
		"/_crannog;x/ready", "/_crannog-x", "/%2525252525255fcrannog",
		"/init", "/INIT", "/init/", "//init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade",
		"/upgrade?x=1", "/%69nit", "/files/%2e%2e/init",
	} {
		for _, method := range []string{"GET", "POST", "OPTIONS"} {
			before := w.dials.Load()
			r := w.request(t, guestboot.Port, method, "/")
			aim(r, path)
			a := w.send(t, r)
			if a.StatusCode != http.StatusNotFound || w.dials.Load() != before {
				t.Errorf("%s %s: %d %s", method, path, a.StatusCode, a.text)
				continue
			}
			wantRefusal(t, a, map[string]any{"code": 404.0})
			if !strings.Contains(a.text, "This endpoint is reserved") || !strings.Contains(a.text, `"path":`) {
				t.Errorf("%s %s: %s", method, path, a.text)
			}
		}
	}
}

// aim sets the target of a request to exactly this text.
func aim(r *http.Request, path string) {
	if strings.HasPrefix(path, "//") {
		r.URL.Path = path // in Opaque it would be parsed as a host
		return
	}
	r.URL.Opaque = path
}

// TestOtherPathsAreForwarded checks that similar paths reach the sandbox unchanged.
func TestOtherPathsAreForwarded(t *testing.T) {
	w := newTestProxy(t)
	for _, path := range []string{
		"/", "/health", "/files?path=/init", "/files?path=%2f_crannog", "/process.Process/Start", "/initial", "/upgrades",
		"/a%2fb", "//double", "/a/./b", "/x%20y", "/100%25", "/files/_crannog",
	} {
		r := w.request(t, guestboot.Port, "GET", "/")
		aim(r, path)
		if a := w.send(t, r); a.Header.Get("X-Uri") != path {
			t.Errorf("%s arrives as %q: %d %s", path, a.Header.Get("X-Uri"), a.StatusCode, a.text)
		}
	}
	// A program may have such paths; only the guest's are private.
	if a := w.send(t, w.request(t, 3000, "GET", "/init")); a.Header.Get("X-Reached") != "program" {
		t.Errorf("a program's /init: %d %s", a.StatusCode, a.text)
	}
}

func TestControlHeaderIsRemoved(t *testing.T) {
	w := newTestProxy(t)
	for _, port := range []int{guestboot.Port, 3000, 49999} {
		if port == 49999 {
			w.serve(boxID, port, echo("interpreter"))
		}
		for _, name := range []string{"X-Crannog-Control", "x-crannog-control", "X_Crannog_Control", "X-CRANNOG_control"} {
			r := w.request(t, port, "GET", "/")
			r.Header[name] = []string{"guess"}
			r.Header["Other_header"] = []string{"kept"}
			a := w.send(t, r)
			for got := range a.Header {
				if strings.EqualFold(strings.ReplaceAll(got, "_", "-"), "Got-X-Crannog-Control") {
					t.Errorf("port %d: %s arrives as %s", port, name, got)
				}
			}
			if a.Header.Get("Got-Other_header") != "kept" {
				t.Errorf("port %d: a header with an underscore is lost: %v", port, a.Header)
			}
		}
	}
}

func TestRequestIsForwardedUnchanged(t *testing.T) {
	w := newTestProxy(t)
	r := w.request(t, 3000, "POST", "/p?b=2&a=1;c&%zz&d")
	r.Body = io.NopCloser(strings.NewReader("body"))
	r.Host = "3000-" + boxID + ".sbx.example"
	r.Header.Set("X-Forwarded-For", "1.2.3.4")
	r.Header.Set("X-Forwarded-Proto", "https")
	r.Header.Set("Accept-Encoding", "br")
	r.Header["lang_version"] = []string{"v20"}
	r.Header.Add("X-Twice", "1")
	r.Header.Add("X-Twice", "2")
	a := w.send(t, r)
	if a.text != "body" || a.Header.Get("X-Uri") != "/p?b=2&a=1;c&%zz&d" || a.Header.Get("X-Host") != r.Host {
		t.Errorf("text, URI and host: got %q, %q, %q", a.text, a.Header.Get("X-Uri"), a.Header.Get("X-Host"))
	}
	for k, v := range map[string]string{
		"X-Forwarded-For": "1.2.3.4", "X-Forwarded-Proto": "https", "Accept-Encoding": "br",
		"Lang_version": "v20", "X-Twice": "1",
	} {
		if got := a.Header.Get("Got-" + k); got != v {
			t.Errorf("%s = %q, want %q", k, got, v)
		}
	}
	if len(a.Header["Got-X-Twice"]) != 2 {
		t.Error("a repeated header is lost")
	}
	r = w.request(t, 3000, "GET", "/")
	r.Header.Set("User-Agent", "")
	if a := w.send(t, r); a.Header.Get("Got-User-Agent") != "" || a.Header.Get("Got-Accept-Encoding") != "gzip" {
		t.Errorf("headers were added: %v", a.Header)
	}
}

func TestMaskRequestHost(t *testing.T) {
	w := newTestProxy(t)
	w.add("i2", func(s *sandbox.Sandbox) { s.MaskRequestHost = "localhost:${PORT}" })
	for _, port := range []int{3000, 49983} {
		w.serve("i2", port, echo("x"))
	}
	for port, want := range map[string]string{"3000": "localhost:3000", "49983": "api.x.y"} {
		a := w.get(t, "GET", "/", "api.x.y", "E2b-Sandbox-Id", "i2", "E2b-Sandbox-Port", port)
		if got := a.Header.Get("X-Host"); got != want {
			t.Errorf("port %s sees Host %q, want %q", port, got, want)
		}
	}
}

func TestUpgradeAndCONNECTAreRejected(t *testing.T) {
	w := newTestProxy(t)
	for _, protocol := range []string{"h2c", "websocket", "anything"} {
		r := w.request(t, guestboot.Port, "GET", "/x")
		r.Header.Set("Connection", "Upgrade, HTTP2-Settings")
		r.Header.Set("Upgrade", protocol)
		r.Header.Set("HTTP2-Settings", "AAMAAABkAAQAAP__")
		a := w.send(t, r)
		if a.StatusCode != 200 || a.Header.Get("Got-Upgrade") != "" || a.Header.Get("Got-Http2-Settings") != "" {
			t.Errorf("%s: %d %v", protocol, a.StatusCode, a.Header)
		}
	}
	conn, err := net.Dial("tcp", w.front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "CONNECT 3000-"+boxID+".x.y:80 HTTP/1.1\r\nHost: 3000-"+boxID+".x.y:80\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("CONNECT: %v, %v", res, err)
	}
}

func TestSignedFilesCannotActInServerOrigin(t *testing.T) {
	w := newTestProxy(t)
	hostile := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		rw.Header().Set("Set-Cookie", "session=stolen")
		rw.Header().Set("Clear-Site-Data", "*")
		rw.Header().Set("Refresh", "0;url=https://evil.example")
		_, _ = io.WriteString(rw, "<script>1</script>")
	})
	w.add("i2", nil)
	w.serve("i2", guestboot.Port, hostile)
	sig := signature.Sign("a.html", signature.Read, "", "token-i2", 0)
	a := w.get(t, "GET", "/files?path=a.html&signature="+url.QueryEscape(sig), "")
	if !strings.Contains(a.Header.Get("Content-Security-Policy"), "sandbox") || a.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("scripts of a signed file can run in the server's origin: %v", a.Header)
	}
	for _, name := range []string{"Set-Cookie", "Clear-Site-Data", "Refresh"} {
		if a.Header.Get(name) != "" {
			t.Errorf("a signed file sets %s for the server's origin", name)
		}
	}
	// A page of any origin may request the same address of another port, which it names in headers.
	// A browser caches the answer under the address, and would show it there later.
	w.serve("i2", 3000, hostile)
	r := w.request(t, 3000, "GET", "/files?path=a.html&signature="+url.QueryEscape(sig))
	r.Header.Set("E2b-Sandbox-Id", "i2")
	r.Header.Set("Origin", "http://3000-i2.x.y")
	a = w.send(t, r)
	if !strings.Contains(a.Header.Get("Content-Security-Policy"), "sandbox") || a.Header.Get("X-Content-Type-Options") != "nosniff" || a.Header.Get("Set-Cookie") != "" {
		t.Errorf("an answer of a port to a page can run in the server's origin: %v", a.Header)
	}
	// Control: all of this is allowed in the sandbox's own origin, and for programs, which send no
	// Origin header.
	r.Header.Del("Origin")
	if a = w.send(t, r); a.Header.Get("Set-Cookie") == "" || a.Header.Get("Content-Security-Policy") != "" {
		t.Errorf("an answer to a program is changed: %v", a.Header)
	}
	a = w.get(t, "GET", "/", "49983-i2.x.y")
	if a.Header.Get("Set-Cookie") == "" || a.Header.Get("Content-Security-Policy") != "" {
		t.Errorf("a sandbox's own origin is changed: %v", a.Header)
	}
}
