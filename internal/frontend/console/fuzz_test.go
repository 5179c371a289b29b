package console

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

// FuzzHost checks that, whatever a Host header contains, the console accepts only its own names and
// loopback addresses. A name server cannot redirect an address (DNS rebinding).
func FuzzHost(f *testing.F) {
	for _, seed := range []string{
		"localhost", "localhost:7070", "127.0.0.1", "[::1]:1", "evil.example", "localhost.evil.example", "127.0.0.1.", "own.example:443", "", ":", "[", "[::1", "::1",
		"127.0.0.1%eth0", "[fe80::1%25eth0]:1", "0x7f.1", "localhost:80:80", "LocalHost..", "own.example\x00.evil", "[::ffff:127.0.0.1]",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := httptest.NewRequest("GET", "/", nil)
		host := hostOf(text)
		if !isOwnName(host, r, []string{"own.example", ""}) {
			return
		}
		if a, err := netip.ParseAddr(host); err == nil {
			if !a.IsLoopback() {
				t.Fatalf("host %q is accepted as the address %s, which is not loopback", text, a)
			}
			return
		}
		if host != "localhost" && host != "own.example" || !strings.Contains(strings.ToLower(text), host) {
			t.Fatalf("host %q is accepted as %q", text, host)
		}
	})
}

// FuzzOrigin checks that only the console's own origin is accepted, whatever the header Origin
// contains.
func FuzzOrigin(f *testing.F) {
	for _, seed := range []string{"http://h.test", "https://h.test", "http://h.test.evil", "null", "", "http://h.test@evil", "http://evil/h.test", "HTTP://H.TEST", "http://h.test:80", "//h.test", "file://h.test"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, origin string) {
		r := httptest.NewRequest("POST", "/", nil)
		r.Host = "h.test"
		r.Header["Origin"] = []string{origin}
		if checkOrigin(r) == nil && !strings.HasPrefix(strings.ToLower(origin), "http://h.test") && !strings.HasPrefix(strings.ToLower(origin), "https://h.test") {
			t.Fatalf("origin %q is accepted", origin)
		}
	})
}
