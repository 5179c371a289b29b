package names_test

import (
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/names"
)

func TestPathAcceptsPlainPaths(t *testing.T) {
	for _, p := range []string{
		"/", "/a", "/a/", "/a/b.c", "/repos/acme/pay/issues", "/a%20b", "/%C3%A9", "/~user", "/a..b", "/.git/config", "/...",
		"/@scope", "/a:b", "/a=b&c", "/a[0]", "/(a)'*+,!$~-_", "/a%3Bb", "/acme/pay.git/git-receive-pack",
	} {
		if err := names.Path(p, names.PathOptions{}); err != nil {
			t.Errorf("Path(%q): %v", p, err)
		}
	}
}

// Threat N13 (docs/reference/threat-model.md): a path that servers may interpret differently is
// rejected.
func TestPathRejectsAmbiguousPaths(t *testing.T) {
	for _, p := range []string{
		"", "*", "a", "http://a/", "/.", "/..", "/a/../b", "/a/./b", "/a/..", "//", "//a", "/a//b", "/a//",
		"/%2e%2e/b", "/%2E/b", "/a%2e", "/a/.%2e/b", "/%252e%252e/b", "/a%25", "/a%5cb", "/a%5Cb", `/a\..\b`,
		"/a%00", "/a%0a", "/a%0d", "/a%0D%0AHost:%20x", "/a%7f", "/a%09", "/a;b", "/..;/a", "/..%3b/a", "/.%3Bx/a",
		"/a?b", "/a#b", "/a b", "/a\x00", "/a\n", "/a\x7f", "/é", `/a"b`, "/a<b", "/a|b", "/a^b", "/{a}", "/a`b", "/%", "/%2", "/%zz", "/%c0%ae%c0%ae/a", "/%ff",
	} {
		for _, o := range []names.PathOptions{{}, {EncodedSlash: true}} {
			if err := names.Path(p, o); err == nil {
				t.Errorf("Path(%q, %+v) returned no error", p, o)
			}
		}
	}
}

func TestPathAllowsEncodedSlashOnRequest(t *testing.T) {
	for _, p := range []string{"/@scope%2fpkg", "/@scope%2Fpkg", "/o/a%2fb%2fc", "/a%2f"} {
		if err := names.Path(p, names.PathOptions{}); err == nil {
			t.Errorf("Path(%q) returned no error", p)
		}
		if err := names.Path(p, names.PathOptions{EncodedSlash: true}); err != nil {
			t.Errorf("Path(%q) with encoded slashes: %v", p, err)
		}
	}
	for _, p := range []string{"/a%2f..%2fb", "/..%2fa", "/a%2f.", "/a%2f/b", "/a%2f%2fb", "/%2f", "/a%252fb", "/a%5cb"} {
		if err := names.Path(p, names.PathOptions{EncodedSlash: true}); err == nil {
			t.Errorf("Path(%q) with encoded slashes returned no error", p)
		}
	}
}

// An accepted path stays the same through parsing, cleaning and resolving against a base, decoded
// or not.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"/", "/a/b", "/a%2fb", "/..", "/a%2e", "/%c0%ae", "/a;b", "/a//b", "/..%3b/", "/a%25", "/a%2f..%2fb"} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, in string, slash bool) {
		if names.Path(in, names.PathOptions{EncodedSlash: slash}) != nil {
			return
		}
		if names.Path(in, names.PathOptions{EncodedSlash: true}) != nil {
			t.Fatalf("%q is accepted without EncodedSlash but rejected with it", in)
		}
		u, err := url.ParseRequestURI(in)
		if err != nil || u.EscapedPath() != in || u.RawQuery != "" || u.Host != "" {
			t.Fatalf("url.ParseRequestURI interprets %q as %+v, %v", in, u, err)
		}
		for _, reading := range []string{in, u.Path} {
			if tidy := path.Clean(reading); tidy != reading && (tidy == "/" || tidy+"/" != reading) {
				t.Fatalf("%q is interpreted as %q, which is normalised to %q", in, reading, tidy)
			}
		}
		if twice, err := url.PathUnescape(u.Path); err != nil || twice != u.Path {
			t.Fatalf("%q can be decoded twice: %q, %v", in, twice, err)
		}
		if strings.Count(u.Path, "/") != strings.Count(in, "/") && !slash {
			t.Fatalf("%q has hidden slashes", in)
		}
		base := &url.URL{Scheme: "https", Host: "a.test", Path: "/x/y"}
		if got := base.ResolveReference(&url.URL{Path: u.Path, RawPath: u.RawPath}); got.EscapedPath() != in {
			t.Fatalf("%q resolves to %q", in, got.EscapedPath())
		}
	})
}
