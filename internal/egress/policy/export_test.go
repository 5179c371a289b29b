package policy_test

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
)

// Each level's decisions about exports, with and without deletions.
func TestLevelsOnExports(t *testing.T) {
	for level, want := range map[string][2]egress.Effect{
		"strict": {egress.Ask, egress.Ask}, "standard": {egress.Allow, egress.Ask},
		"light": {egress.Allow, egress.Allow}, "minimal": {egress.Allow, egress.Allow},
	} {
		p := compile(t, ofTask(parse(t, "level: "+level)))
		if got := [2]egress.Effect{p.Export(false).Effect, p.Export(true).Effect}; got != want {
			t.Errorf("%s: %v, want %v", level, got, want)
		}
		if !p.Takes("any/file") {
			t.Errorf("%s narrows what comes out", level)
		}
	}
	d := compile(t, ofTask(parse(t, "level: standard"))).Export(true)
	if d.Rule != policy.RuleDeletions || d.Layer != policy.LayerLevel || d.Fix != "crannog approve" || d.Reason == "" || d.Policy == "" {
		t.Errorf("%+v", d)
	}
}

// P38: a lower layer narrows what comes out, and never widens it.
func TestExportOnlyTightens(t *testing.T) {
	up := parse(t, "level: light\nfilesystem: {export: {deletions: ask, only: ['dist/**', 'report.txt']}}")
	down := parse(t, "filesystem: {export: {do: deny, deletions: allow, only: ['dist/*.js', 'secret.txt']}}")
	p, warnings, err := policy.Compile(org(up), ofTask(down))
	if err != nil {
		t.Fatal(err)
	}
	if d := p.Export(false); d.Effect != egress.Deny || d.Layer != policy.LayerTask || d.Fix != "" {
		t.Errorf("%+v", d)
	}
	if d := compile(t, org(up)).Export(true); d.Effect != egress.Ask || d.Layer != policy.LayerOrganisation {
		t.Errorf("%+v", d)
	}
	if p.Removes() != egress.Ask {
		t.Error("a lower layer loosened deletions")
	}
	if len(warnings) == 0 || !strings.Contains(warnings[0].Field, "deletions") {
		t.Errorf("%+v", warnings)
	}
	for path, want := range map[string]bool{
		"dist/a.js": true, "dist/a.css": false, "dist/sub/a.js": false, "report.txt": false, "secret.txt": false, "Dist/a.js": false, "": false,
	} {
		if p.Takes(path) != want {
			t.Errorf("%q: %v", path, !want)
		}
	}
}

// A setting that no document has means ask: a policy that was stored before the setting existed
// must not let everything out.
func TestExportUnsaidAsks(t *testing.T) {
	level, err := policy.Level("light")
	if err != nil {
		t.Fatal(err)
	}
	level.Filesystem.Export = policy.Export{}
	p := compile(t, policy.Layer{Kind: policy.LayerLevel, Document: level})
	if p.Export(false).Effect != egress.Ask || p.Export(true).Effect != egress.Ask {
		t.Errorf("%+v %+v", p.Export(false), p.Export(true))
	}
}

func TestBadExport(t *testing.T) {
	for _, text := range []string{
		"do: maybe", "deletions: yes", "only: []", "only: ['/dist/**']", "only: ['../x']", "only: ['dist/']", "only: ['a//b']", "only: [x, '[a]']", "links: allow",
	} {
		if _, err := policy.Parse([]byte("policy: v1\nfilesystem: {export: {" + text + "}}\n")); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
	parse(t, "filesystem: {export: {only: ['dist/**', '**/*.txt', '**']}}")
}

func TestWidenReportsExports(t *testing.T) {
	two := []policy.Layer{
		project(parse(t, "filesystem: {export: {only: ['a/**']}}")),
		ofTask(parse(t, "filesystem: {export: {only: ['b/**'], do: ask}}")),
	}
	before := compile(t, two...)
	for _, c := range []struct {
		layers []policy.Layer
		wider  bool
	}{
		{two, false},
		{[]policy.Layer{ofTask(parse(t, "filesystem: {export: {only: ['a/**', 'b/**'], do: ask}}"))}, true},
		{[]policy.Layer{two[0], ofTask(parse(t, "filesystem: {export: {only: ['b/**']}}"))}, true},
		{[]policy.Layer{two[0], ofTask(parse(t, "filesystem: {export: {only: ['b/c'], do: deny}}"))}, false},
	} {
		if got := policy.Widen(before, compile(t, c.layers...)); (len(got) > 0) != c.wider {
			t.Errorf("%v: %v", c.layers, got)
		}
	}
}

func TestChosen(t *testing.T) {
	for _, c := range []struct {
		names, in, out string
	}{
		{"src", "src src/a src/b/c", "source a/src"},
		{"src/", "src src/a", "s"},
		{"./a.txt", "a.txt", "b.txt a.txt.bak"},
		{"**/*.md", "a.md x/y/b.md", "a.txt"},
		{".", "a b/c", ""},
		{"a b/*.go", "a a/x b/x.go", "b b/y.txt"},
	} {
		in, err := policy.Chosen(strings.Fields(c.names))
		if err != nil {
			t.Fatal(err)
		}
		for p := range strings.FieldsSeq(c.in) {
			if !in(p) {
				t.Errorf("%s leaves %s out", c.names, p)
			}
		}
		for p := range strings.FieldsSeq(c.out) {
			if in(p) {
				t.Errorf("%s takes %s", c.names, p)
			}
		}
	}
	// A name may contain characters that a glob may not.
	if in, err := policy.Chosen([]string{"a[1].txt"}); err != nil || !in("a[1].txt") || in("a1.txt") {
		t.Errorf("a plain name: %v", err)
	}
	for _, bad := range []string{"/etc/passwd", "a**/b", "*/../x"} {
		if _, err := policy.Chosen([]string{bad}); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	if in, err := policy.Chosen(nil); err != nil || !in("anything") {
		t.Error("none is not all")
	}
}

func TestExplainExport(t *testing.T) {
	p := compile(t, project(parse(t, "level: standard\nfilesystem: {export: {only: ['dist/**']}}")))
	for _, c := range []struct {
		path    string
		removed bool
		effect  egress.Effect
		rule    string
	}{
		{"dist/a", false, egress.Allow, policy.RuleExport}, {"dist/a", true, egress.Ask, policy.RuleDeletions},
		{"src/a", false, egress.Deny, policy.RuleOnly},
	} {
		d, steps := p.ExplainExport(c.path, c.removed)
		if d.Effect != c.effect || d.Rule != c.rule || len(steps) < 2 || steps[len(steps)-1].Text != "decides" {
			t.Errorf("%v: %+v %+v", c, d, steps)
		}
	}
}
