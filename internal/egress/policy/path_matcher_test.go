package policy

import (
	"path"
	"testing"
)

func TestPathMatcherAgreesWithMatcher(t *testing.T) {
	m := Files{
		Protect:  []string{"**/.git/config", "**/.git/hooks/**", "/workspace/a*/*/c", "**/x/**/y"},
		ReadOnly: []string{"**/rules.md"},
	}.Matcher()
	w := m.ProtectedPaths()
	for _, name := range []string{
		"/workspace/.git/config", "/workspace/sub/.git/config", "/workspace/.git/configs", "/workspace/.git/hooks", "/workspace/.git/hooks/a/b",
		"/workspace/ab/z/c", "/workspace/a/z/z/c", "/workspace/x/y", "/workspace/x/1/2/y", "/workspace/x/1/2/z", "/workspace/RULES.md", "/workspace", "/rules.md",
	} {
		if got, want := w.Matches(w.Start(name)), m.Protected(name); got != want {
			t.Errorf("Matches of %s = %v, but Protected returns %v", name, got, want)
		}
		if w.Step(w.Start(path.Dir(name)), path.Base(name)) != w.Start(name) {
			t.Errorf("stepping to %s results in another state than starting there", name)
		}
	}
	if w.Start("/workspace/a1") != w.Start("/workspace/a2") || w.Start("/workspace/b") == w.Start("/workspace/x") {
		t.Error("paths with equal matches below them have different states, or others have equal ones")
	}
}
