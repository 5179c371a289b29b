package policy

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/names"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestGlobMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, yes, no string
	}{
		{"/a/b", "/a/b", "/a /a/b/ /a/b/c /A/b /a/bb"},
		{"/a/*", "/a/b /a/bcd", "/a /a/ /a/b/c /a/b/"},
		{"/a/**", "/a /a/ /a/b /a/b/c", "/ab /b/a /"},
		{"/**", "/ /a /a/b", ""},
		{"/**/x", "/x /a/x /a/b/x", "/a /x/y /ax"},
		{"/a/**/x/*/y", "/a/x/1/y /a/b/x/1/y /a/x/x/x/y", "/a/x/y /a/x/1/2/y"},
		{"/r/*/*/hooks/**", "/r/a/b/hooks /r/a/b/hooks/1", "/r/a/hooks /r/a/b/c/hooks"},
		{"/v*/x", "/v1/x /v/x", "/v1/1/x /w/x"},
		{"**/id_*", "/home/a/id_rsa id_x", "/home/id_rsa/x"},
		{"**/.env.*", "/w/.env.local", "/w/.env"},
		{"/", "/", "/a"},
	} {
		g := newGlob(c.pattern)
		for p := range strings.FieldsSeq(c.yes) {
			if !g.match(p, false) {
				t.Errorf("%s does not match %s", c.pattern, p)
			}
		}
		for p := range strings.FieldsSeq(c.no) {
			if g.match(p, false) {
				t.Errorf("%s matches %s", c.pattern, p)
			}
		}
	}
	if !newGlob("/a/b").match("/A/B", true) {
		t.Error("/a/b does not match /A/B without regard to case")
	}
}

// simpleMatch is a simple implementation of globs, which takes exponential time.
func simpleMatch(pattern, path []string) bool {
	if len(pattern) == 0 {
		return len(path) == 0
	}
	if pattern[0] == "**" {
		return simpleMatch(pattern[1:], path) || len(path) > 0 && simpleMatch(pattern, path[1:])
	}
	return len(path) > 0 && simpleMatchSegment(pattern[0], path[0]) && simpleMatch(pattern[1:], path[1:])
}

func simpleMatchSegment(p, s string) bool {
	if p == "*" {
		return s != ""
	}
	if p == "" {
		return s == ""
	}
	if p[0] == '*' {
		return simpleMatchRest(p[1:], s) || s != "" && simpleMatchRest(p, s[1:])
	}
	return s != "" && p[0] == s[0] && simpleMatchRest(p[1:], s[1:])
}

// simpleMatchRest is simpleMatchSegment for the rest of a segment, in which a lone * may be empty.
func simpleMatchRest(p, s string) bool {
	if p == "*" {
		return true
	}
	return simpleMatchSegment(p, s)
}

func FuzzGlob(f *testing.F) {
	for _, s := range []string{"/a/**/x", "/*/b*c/**", "**", "/a/*", "/**/*/**/q", "a**b"} {
		f.Add(s, "/a/b/c/x")
	}
	f.Fuzz(func(t *testing.T, pattern, path string) {
		if len(pattern) > 24 || len(path) > 24 {
			return
		}
		split := func(s string) []string { return strings.Split(strings.TrimPrefix(s, "/"), "/") }
		if got, want := newGlob(pattern).match(path, false), simpleMatch(split(pattern), split(path)); got != want {
			t.Fatalf("match of %q and %q = %v, want %v", pattern, path, got, want)
		}
		if newGlob(pattern).match(path, false) && !newGlob(pattern).match(path, true) {
			t.Fatalf("%q matches %q only with regard to case", pattern, path)
		}
	})
}

// If covers returns true, every path that the narrow pattern matches is matched by the wide one.
func FuzzCovers(f *testing.F) {
	f.Add("/a/**", "/a/*", "/a/b")
	f.Add("/*/b", "/a*/b", "/a/b")
	f.Add("/**/x", "/**/x", "/x")
	f.Fuzz(func(t *testing.T, wide, narrow, path string) {
		if len(wide)+len(narrow)+len(path) > 100 || !covers(wide, narrow) {
			return
		}
		if newGlob(narrow).match(path, false) && !newGlob(wide).match(path, false) {
			t.Fatalf("covers(%q, %q) is true, but only the second matches %q", wide, narrow, path)
		}
	})
}

// A sandbox chooses the path, so the worst path must not cost more than the product of the lengths.
func TestGlobTimeIsBounded(t *testing.T) {
	g := newGlob("/" + strings.Repeat("**/a*a*a*a*b/", 30) + "x")
	path := "/" + strings.Repeat("aaaaaaaaaaaaaaa/", 1000)
	matches := make(chan bool, 1)
	go func() { matches <- g.match(path, false) }()
	select {
	case matched := <-matches:
		if matched {
			t.Fatal("the pattern matches, want no match")
		}
	case <-hosttest.Late(): // backtracking would take years
		t.Fatal("match does not return")
	}
}

func TestReadPathDecodesEscapes(t *testing.T) {
	for in, want := range map[string]string{
		"/": "/", "/a/b": "/a/b", "/a/": "/a/", "/%68ooks": "/hooks", "/caf%C3%A9": "/café", "/@a%2Fb": "/@a%2Fb", "/@a%2fb": "/@a%2Fb", "/a%20b": "/a b",
	} {
		if got, ok := readPath(in); !ok || got.exact != want {
			t.Errorf("readPath(%q) = %q, %v, want %q", in, got.exact, ok, want)
		}
	}
	for _, in := range []string{
		"", "a", "*", "http://x/", "//", "/a//b", "/./a", "/a/..", "/a/../b", "/a/.", "/%2e%2e/a", "/%2E", "/%252e", "/%5c", "/a\\b", "/a;b", "/a?b", "/a#b",
		"/%00", "/%0a", "/%0D", "/%7f", "/%", "/%4", "/%zz", "/a b", "/é", "/a%2F%2Fb", "/a%2F..%2Fb", "/" + strings.Repeat("a", longestPath),
	} {
		if got, ok := readPath(in); ok {
			t.Errorf("readPath(%q) = %+v, want an error", in, got)
		}
	}
}

// readPath accepts every path that the proxy accepts, so that rules can match it. A decoded path
// cannot be used to evade a rule.
func FuzzReadPath(f *testing.F) {
	for _, s := range []string{"/a/%68ooks", "/a%2Fb", "/..", "/a//", "/%c0%ae", "/a;b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		got, ok := readPath(path)
		if names.Path(path, names.PathOptions{EncodedSlash: true}) == nil && len(path) <= longestPath && !ok {
			t.Fatalf("names.Path accepts %q, but readPath rejects it", path)
		}
		if !ok {
			return
		}
		for _, s := range []string{got.exact, got.loose} {
			if strings.Contains(s, "//") || strings.Contains(s, "/../") || strings.HasSuffix(s, "/..") || strings.ContainsAny(s, "\\\x00\n") {
				t.Fatalf("readPath(%q) = %q, which is ambiguous", path, s)
			}
		}
	})
}

func TestValidNameAgreesWithCanonical(t *testing.T) {
	for _, h := range []string{"a.test", "x", "a-b.c1", "xn--e1afmkfd.test", "A.test", "a..b", "-a.b", "a-.b", "a.1", "a.0x1", "1.2.3.4", "", "a_b.test", strings.Repeat("a", 64) + ".b", "localhost", "a.b0", "é.test", "a.0xg"} {
		got, err := names.Canonical(h)
		if ok := err == nil && got == h; validName(h) && !ok {
			t.Errorf("validName accepts %q, but names.Canonical does not: %v", h, err)
		} else if ok && !validName(h) {
			t.Logf("names.Canonical accepts %q, but validName does not", h)
		}
	}
}

// Globs match names of refs and repositories in the same way as paths.
func TestMatchRefsAndPaths(t *testing.T) {
	for _, c := range []struct {
		glob, name string
		want       bool
	}{
		{"refs/heads/agent/**", "refs/heads/agent/x", true}, {"refs/heads/agent/**", "refs/heads/agents/a", false},
		{"refs/heads/*", "refs/heads/a/b", false}, {"refs/heads/**/x", "refs/heads/a/b/x", true}, {"refs/heads/**/x", "refs/heads/x", true},
		{"refs/heads/**/x", "refs/heads/x/y", false}, {"refs/heads/a*b*c", "refs/heads/a1b2b3c", true}, {"refs/heads/ab*ba", "refs/heads/aba", false},
		{"refs/heads/A", "refs/heads/a", false}, {"acme/*", "acme/pay", true}, {"acme/*", "acme/", false},
	} {
		if got := Match(c.glob, c.name); got != c.want {
			t.Errorf("Match(%s, %s) = %v, want %v", c.glob, c.name, got, c.want)
		}
	}
	for escaped, want := range map[string]bool{"/a/": true, "/a": false, "/%61/": true, "/a%2F": false, "/a//": false, "/b/../a/": false, "a/": false} {
		if got := MatchPath("/a/", escaped); got != want {
			t.Errorf("MatchPath(/a/, %s) = %v, want %v", escaped, got, want)
		}
	}
}
