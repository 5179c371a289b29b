package policy

import (
	"path"
	"testing"
)

func TestMatchedSegmentBySegment(t *testing.T) {
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
			t.Errorf("%s: %v, and the globs say %v", name, got, want)
		}
		if w.Step(w.Start(path.Dir(name)), path.Base(name)) != w.Start(name) {
			t.Errorf("%s: another state by steps", name)
		}
	}
	if w.Start("/workspace/a1") != w.Start("/workspace/a2") || w.Start("/workspace/b") == w.Start("/workspace/x") {
		t.Error("states are equal although different paths may follow")
	}
}
