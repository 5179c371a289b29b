package console_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/crannog/crannog/internal/frontend/console"
	"github.com/crannog/crannog/internal/frontend/console/session"
)

// TestServedFilesAndHeaders checks the body, the encoding and the headers of each path.
func TestServedFilesAndHeaders(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct {
		path, acceptEncoding, body, encoding, mediaType, cache string
		status                                                 int
	}{
		{"/console/", "", "<!doctype html><title>Crannog</title>", "", "text/html", "no-store", 200},
		{"/console/", "gzip, br", "index in brotli", "br", "text/html", "no-store", 200},
		{"/console/s/i1/terminal?a=b", "gzip", "<!doctype html><title>Crannog</title>", "", "text/html", "no-store", 200},
		{"/console/assets/index-a1.js", "br;q=1.0, gzip;q=0.8", "script in brotli", "br", "text/javascript", "immutable", 200},
		{"/console/assets/index-a1.js", "gzip", "script in gzip", "gzip", "text/javascript", "immutable", 200},
		{"/console/assets/index-a1.js", "br;q=0, gzip;q=0", "plain script", "", "text/javascript", "immutable", 200},
		{"/console/assets/index-a1.js", "", "plain script", "", "text/javascript", "immutable", 200},
		{"/console/assets/none.js", "", "there is no such file\n", "", "text/plain", "no-store", 404},
		{"/console/assets/index-a1.js.br", "", "there is no such file\n", "", "text/plain", "no-store", 404},
		{"/console/assets/../index.html", "", "there is no such file\n", "", "text/plain", "no-store", 404},
		{"/console/assets/..%2f..%2fREADME.md", "", "there is no such file\n", "", "text/plain", "no-store", 404},
		{"/console/assets/%2e%2e/%2e%2e/README.md", "", "there is no such file\n", "", "text/plain", "no-store", 404},
		{"/console/assets//etc/passwd", "", "there is no such file\n", "", "text/plain", "no-store", 404},
		{"/console/assets/", "", "there is no such file\n", "", "text/plain", "no-store", 404},
		{"/console/other/secret.txt", "", "<!doctype html><title>Crannog</title>", "", "text/html", "no-store", 200},
		{"/console/README.md", "", "<!doctype html><title>Crannog</title>", "", "text/html", "no-store", 200},
	} {
		h := http.Header{}
		if c.acceptEncoding != "" {
			h.Set("Accept-Encoding", c.acceptEncoding)
		}
		g := s.send(siteRequest{path: c.path, header: h})
		if g.status != c.status || g.body != c.body || g.header.Get("Content-Encoding") != c.encoding || !strings.HasPrefix(g.header.Get("Content-Type"), c.mediaType) || !strings.Contains(g.header.Get("Cache-Control"), c.cache) {
			t.Errorf("%s with Accept-Encoding %q: got %d %q %v", c.path, c.acceptEncoding, g.status, g.body, g.header)
		}
		csp := g.header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self';", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "http://*.localhost:* http://*.sbx.example.com https://*.sbx.example.com blob:"} {
			if !strings.Contains(csp, part) {
				t.Errorf("%s: no %q in %q", c.path, part, csp)
			}
		}
		if strings.Contains(csp, "unsafe-eval") || strings.Contains(csp, "script-src 'self' ") || g.header.Get("X-Content-Type-Options") != "nosniff" || g.header.Get("Referrer-Policy") != "no-referrer" ||
			g.header.Get("Cross-Origin-Opener-Policy") != "same-origin" || g.header.Get("Permissions-Policy") == "" {
			t.Errorf("%s: %v", c.path, g.header)
		}
	}
	if g := s.send(siteRequest{method: "POST", path: "/console/"}); g.status != 400 {
		t.Errorf("POST to a file: got status %d, want 400", g.status)
	}
	if g := s.send(siteRequest{path: "/console"}); g.status != 301 || g.header.Get("Location") != "/console/" {
		t.Errorf("%s: got %d %v, want a redirect to /console/", "/console", g.status, g.header)
	}
	// Browsers are redirected to the console, and other programs get the same response as before.
	if g := s.send(siteRequest{path: "/", header: http.Header{"Accept": {"text/html,*/*;q=0.8"}}}); g.status != 303 || g.header.Get("Location") != "/console/" {
		t.Errorf("/ for a browser: got %d %v, want a redirect to the console", g.status, g.header)
	}
	if g := s.send(siteRequest{path: "/", header: http.Header{"Accept": {"*/*"}}}); g.status == 303 {
		t.Errorf("/ for curl: got status %d, want no redirect", g.status)
	}
}

// TestContentPolicyAllowsPreviews checks that the content security policy names the addresses of
// previews, because browsers block all others. If the domain has no port, a preview has the port of
// the page that shows it.
func TestContentPolicyAllowsPreviews(t *testing.T) {
	s := newSite(t)
	for host, want := range map[string]string{
		"sbx.example.com:8443":  " http://*.sbx.example.com:8443 https://*.sbx.example.com:8443;",
		"sbx.example.com":       " blob:;",
		"sbx.example.com:0":     " blob:;",
		"sbx.example.com:99999": " blob:;",
	} {
		csp := s.send(siteRequest{path: "/console/", host: host}).header.Get("Content-Security-Policy")
		_, frames, _ := strings.Cut(csp, "frame-src")
		if frames, _, _ = strings.Cut(frames, " base-uri"); !strings.HasSuffix(frames, want) || strings.Contains(csp, "*;") || strings.Count(csp, "script-src") != 1 {
			t.Errorf("%s: %q", host, csp)
		}
	}
}

// TestMissingBuildExplainsFix checks a program that was built without the console.
func TestMissingBuildExplainsFix(t *testing.T) {
	s := openSite(t, filepath.Join(t.TempDir(), "s"), fstest.MapFS{"README.md": {Data: []byte("a file")}})
	g := s.send(siteRequest{path: "/console/"})
	if g.status != 404 || !strings.HasPrefix(g.header.Get("Content-Type"), "text/plain") || !strings.Contains(g.body, console.NotBuilt) || !strings.Contains(g.body, "make") {
		t.Errorf("GET /console/: got %d %v %s", g.status, g.header, g.body)
	}
	// The API below the path still works.
	if g := s.send(siteRequest{path: "/console/api/session", cookie: s.sign(session.Viewer)}); g.status != 200 {
		t.Errorf("session: got status %d, want 200", g.status)
	}
}

// TestSandboxDataIsNeverAPage checks that a browser never shows a sandbox's data as a page of the
// console's origin, whatever content type a handler sets (P43).
func TestSandboxDataIsNeverAPage(t *testing.T) {
	s := newSite(t)
	cookie, sandboxID := s.sign(session.Operator), s.sandbox()
	for path, want := range map[string]string{
		"/plain": "application/json; charset=utf-8", "/svg": "application/octet-stream", "/html": "application/octet-stream", "/none": "application/octet-stream",
	} {
		g := s.send(siteRequest{path: "/console/api/sandboxes/" + sandboxID + "/file?path=" + path, cookie: cookie})
		if g.status != 200 || g.body != hostileHTML || g.header.Get("Content-Type") != want {
			t.Errorf("%s: %d %q %v", path, g.status, g.body, g.header)
		}
		if path != "/plain" && !strings.HasPrefix(g.header.Get("Content-Disposition"), "attachment") {
			t.Errorf("%s is not sent as a download: %v", path, g.header)
		}
		if g.header.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(g.header.Get("Content-Security-Policy"), "sandbox") || g.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, g.header)
		}
	}
}

// FuzzAccepts checks that an encoding is accepted only if the header names it.
func FuzzAccepts(f *testing.F) {
	for _, seed := range []string{"br", "gzip, deflate, br;q=0.5", "br;q=0", "*", "br;;q=1", "br;q=NaN", "BR ; q=1", ";,;"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		if console.Accepts(header, "br") && !strings.Contains(strings.ToLower(header), "br") {
			t.Errorf("br is accepted, which is not in %q", header)
		}
	})
}
