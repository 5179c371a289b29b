package changeset

import (
	"fmt"
	"path"
	"slices"
	"testing"
)

// suffixMatcher protects paths that end in two names, as "**/a/b" does, and everything below.
type suffixMatcher struct{ dir, base string }

func (s suffixMatcher) Step(at, name string) string {
	switch {
	case at == "yes" || at == "in" && name == s.base:
		return "yes"
	case name == s.dir:
		return "in"
	}
	return ""
}

func (suffixMatcher) Matches(at string) bool { return at == "yes" }

// aliasesFrom returns the aliases of a host's directory with links.
func aliasesFrom(t *testing.T, links map[string]string) *aliases {
	t.Helper()
	c := &comparison{files: map[string]*trio{}, o: Options{Dir: "/workspace"}}
	for name, to := range links {
		c.files[name] = &trio{host: &Entry{Path: name, Type: Link, Target: to}}
	}
	return c.aliasesOf(suffixMatcher{".git", "hooks"}, "")
}

// F2: the target of a link is protected as if it were at the link's path, for any number of links,
// and even if they form a circle.
func TestF2LinkTargetsAreProtected(t *testing.T) {
	for _, c := range []struct {
		links                  map[string]string
		protected, unprotected []string
	}{
		{nil, []string{".git/hooks", ".git/hooks/x", "a/.git/hooks/x"}, []string{"hooks/x", ".git/config"}},
		{map[string]string{".git/hooks": "../hooks"}, []string{"hooks", "hooks/pre-commit"}, []string{"hooks2", "x/hooks"}},
		{map[string]string{"sub/.git/hooks": "/workspace/ci/./h/../h"}, []string{"ci/h/x"}, []string{"ci/x", "ci"}},
		{map[string]string{".git": "g", "g/hooks": "../h"}, []string{"g/hooks/x", "h/x"}, []string{"g/config"}},
		{map[string]string{".git": "one", "one": "two/three", "two/three/hooks": "../../four"}, []string{"four/x", "two/three/hooks"}, []string{"two/x"}},
		{map[string]string{".git/hooks": "../../outside", "a": "/etc"}, nil, []string{"outside/x", "etc"}},
		{map[string]string{"loop": ".", "a/up": "..", "b": "a", ".git": "loop/a"}, []string{"a/hooks/x"}, []string{"hooks/x", "a/x"}},
		{map[string]string{"self": "self", ".git/hooks": "../self"}, nil, []string{"x"}},
		{map[string]string{".git/hooks": "../file"}, []string{"file"}, []string{"file2"}},
	} {
		l := aliasesFrom(t, c.links)
		for _, name := range c.protected {
			if !l.protected(name) {
				t.Errorf("%v: %s is not protected", c.links, name)
			}
		}
		for _, name := range c.unprotected {
			if l.protected(name) {
				t.Errorf("%v: %s is protected", c.links, name)
			}
		}
	}
}

func TestF2ManyLinks(t *testing.T) {
	links := map[string]string{"zz/.git": "../x"}
	for i := range 5000 {
		links[fmt.Sprintf("d%d/link", i)] = "../x"
		links[fmt.Sprintf("x/l%d", i)] = ".."
	}
	if l := aliasesFrom(t, links); !l.protected("x/hooks/pre-commit") || l.protected("x/other") || l.protected("other") {
		t.Error("protected: wrong result for the target of one link among many")
	}
}

func TestF2Aliases(t *testing.T) {
	l := aliasesFrom(t, map[string]string{".git": "g", "g/hooks": "../h", "top": ".", "h/f": "f2"})
	got := l.aliases("h/f2")
	for _, want := range []string{"g/hooks/f2", ".git/hooks/f2", "h/f", "top/h/f2"} {
		if !slices.Contains(got, want) {
			t.Errorf("aliases: got %q, want %s in it", got, want)
		}
	}
	if len(got) > maxAliases || slices.Contains(got, "h/f2") {
		t.Errorf("aliases: got %d, %q", len(got), got)
	}
	if got := l.aliases(path.Join("a", "b")); !slices.Contains(got, "top/a/b") {
		t.Errorf("aliases: got %q", got)
	}
}
