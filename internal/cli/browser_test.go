package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPageAddress(t *testing.T) {
	for text, want := range map[string]string{
		"example.com": "https://example.com", "example.com:8443/a?b": "https://example.com:8443/a?b", "localhost:3000": "https://localhost:3000",
		"http://example.com/": "http://example.com/", "about:blank": "about:blank", "data:text/html,x": "data:text/html,x", "file:///etc/hosts": "file:///etc/hosts",
		"": "", "https://": "", "javascript://x/%0aalert(1)": "", "chrome://settings": "", "https://exa mple": "", "http://[::1": "",
	} {
		got, err := pageAddress(text)
		if got != want && err == nil || (err == nil) != (want != "") {
			t.Errorf("pageAddress(%q): got %q, %v; want %q", text, got, err, want)
		}
	}
}

// Contradictory flags start nothing: no server is asked.
func TestBrowserMistakes(t *testing.T) {
	taken := filepath.Join(t.TempDir(), "taken.png")
	if err := os.WriteFile(taken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--screenshot a.png --pdf b.pdf":          "exclude each other",
		"--full-page --pdf b.pdf":                 "--full-page needs --screenshot",
		"--screenshot - --json":                   "--json and the file on standard output",
		"--wait quiet":                            "is not load or idle",
		"--timeout 0":                             "is not a time",
		"--timeout soon":                          "is not a time",
		"--size 0x10":                             "is not a size",
		"--size 10x10x10":                         "is not a size",
		"--size 1000000x10":                       "is not a size",
		"--net none --allow x.example":            "exclude each other",
		"javascript://x":                          "is not the address of a page",
		"--screenshot " + taken + " about:blank":  "exists already",
		"--screenshot a.png about:blank b.html":   "accepts at most 1 arg",
		"--screenshot a.png --policy /no/such.js": "read the policy",
	} {
		asked := false
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
		code, stdout, stderr := invoke(t, server.URL, append([]string{"browser"}, strings.Fields(args)...)...)
		server.Close()
		if code == 0 || stdout != "" || asked || !strings.Contains(stderr, want) {
			t.Errorf("crannog browser %s: got %d, asked %v, %q; want %q", args, code, asked, stderr, want)
		}
	}
}

// P91: the address that crannog browser prints needs its token, and what does not have it reaches no
// sandbox.
func TestDevToolsProxyNeedsToken(t *testing.T) {
	var reached []string
	proxy := devToolsProxy(roundTrip(func(r *http.Request) (*http.Response, error) {
		reached = append(reached, fmt.Sprintf("%s %s origin=%s", r.URL, r.Header.Get("X-Forwarded-Prefix"), r.Header.Get("Origin")))
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
	}), "SECRET")
	for path, want := range map[string]string{
		"/SECRET/json/version": "http://localhost:49222/json/version /SECRET origin=http://page.test",
		"/":                    "", "/json/version": "", "/SECRE/json/version": "", "/SECRETS/json/version": "", "//SECRET/json": "", "/secret/json": "", "/x/SECRET/json": "", "/%2e%2e/SECRET/json": "",
	} {
		reached = nil
		r := httptest.NewRequest(http.MethodGet, path, nil)
		// The front in the sandbox refuses pages by this header, so it is passed on.
		r.Header.Set("Origin", "http://page.test")
		r.Header.Set("X-Forwarded-Prefix", "/other")
		w := httptest.NewRecorder()
		proxy.ServeHTTP(w, r)
		if got := strings.Join(reached, ","); got != want || (w.Code == http.StatusOK) != (want != "") {
			t.Errorf("%s: got %d, reached %q; want %q", path, w.Code, got, want)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
