package policy_test

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
)

// Each level's decisions about exports, with and without deletions.
func TestExportDecisionsOfLevels(t *testing.T) {
	for level, want := range map[string][2]egress.Effect{
		"strict": {egress.Ask, egress.Ask}, "standard": {egress.Allow, egress.Ask},
		"light": {egress.Allow, egress.Allow}, "minimal": {egress.Allow, egress.Allow},
	} {
		p := compile(t, ofTask(parse(t, "level: "+level)))
		if got := [2]egress.Effect{p.Export(false).Effect, p.Export(true).Effect}; got != want {
			t.Errorf("level %s: exports are %v, want %v", level, got, want)
		}
		if !p.MayExport("any/file") {
			t.Errorf("level %s restricts the paths of exports", level)
		}
	}
	d := compile(t, ofTask(parse(t, "level: standard"))).Export(true)
	if d.Rule != policy.RuleDeletions || d.Layer != policy.LayerLevel || d.Fix != "crannog approve" || d.Reason == "" || d.Policy == "" {
		t.Errorf("the decision about deletions is %+v", d)
	}
}

// Promise P38 (docs/reference/promises.md): a lower layer can only restrict exports further.
func TestLowerLayerOnlyTightensExports(t *testing.T) {
	up := parse(t, "level: light\nfilesystem: {export: {deletions: ask, only: ['dist/**', 'report.txt']}}")
	down := parse(t, "filesystem: {export: {do: deny, deletions: allow, only: ['dist/*.js', 'secret.txt']}}")
	p, warnings, err := policy.Compile(org(up), ofTask(down))
	if err != nil {
		t.Fatal(err)
	}
	if d := p.Export(false); d.Effect != egress.Deny || d.Layer != policy.LayerTask || d.Fix != "" {
		t.Errorf("export without deletions: %+v, want the task's denial", d)
	}
	if d := compile(t, org(up)).Export(true); d.Effect != egress.Ask || d.Layer != policy.LayerOrganisation {
		t.Errorf("export with deletions: %+v, want ask by the organisation", d)
	}
	if p.Removes() != egress.Ask {
		t.Error("a lower layer loosened the decision about deletions")
	}
	if len(warnings) == 0 || !strings.Contains(warnings[0].Field, "deletions") {
		t.Errorf("the warnings are %+v, want one about deletions", warnings)
	}
	for path, want := range map[string]bool{
		"dist/a.js": true, "dist/a.css": false, "dist/sub/a.js": false, "report.txt": false, "secret.txt": false, "Dist/a.js": false, "": false,
	} {
		if p.MayExport(path) != want {
			t.Errorf("MayExport(%q) = %v, want %v", path, !want, want)
		}
	}
}

// An export setting that no document has means ask. Otherwise a policy that was stored before the
// setting existed would allow every export.
func TestUnsetExportSettingsAsk(t *testing.T) {
	level, err := policy.Level("light")
	if err != nil {
		t.Fatal(err)
	}
	level.Filesystem.Export = policy.Export{}
	p := compile(t, policy.Layer{Kind: policy.LayerLevel, Document: level})
	if p.Export(false).Effect != egress.Ask || p.Export(true).Effect != egress.Ask {
		t.Errorf("exports are %+v and with deletions %+v, want ask", p.Export(false), p.Export(true))
	}
}

func TestParseRejectsInvalidExports(t *testing.T) {
	for _, text := range []string{
		"do: maybe", "deletions: yes", "only: []", "only: ['/dist/**']", "only: ['../x']", "only: ['dist/']", "only: ['a//b']", "only: [x, '[a]']", "links: allow",
	} {
		if _, err := policy.Parse([]byte("policy: v1\nfilesystem: {export: {" + text + "}}\n")); err == nil {
			t.Errorf("Parse accepted the export setting %s", text)
		}
	}
	parse(t, "filesystem: {export: {only: ['dist/**', '**/*.txt', '**']}}")
}

func TestWidenReportsExports(t *testing.T) {
	baseLayers := []policy.Layer{
		project(parse(t, "filesystem: {export: {only: ['a/**']}}")),
		ofTask(parse(t, "filesystem: {export: {only: ['b/**'], do: ask}}")),
	}
	before := compile(t, baseLayers...)
	for _, c := range []struct {
		layers []policy.Layer
		wider  bool
	}{
		{baseLayers, false},
		{[]policy.Layer{ofTask(parse(t, "filesystem: {export: {only: ['a/**', 'b/**'], do: ask}}"))}, true},
		{[]policy.Layer{baseLayers[0], ofTask(parse(t, "filesystem: {export: {only: ['b/**']}}"))}, true},
		{[]policy.Layer{baseLayers[0], ofTask(parse(t, "filesystem: {export: {only: ['b/c'], do: deny}}"))}, false},
	} {
		if got := policy.Widen(before, compile(t, c.layers...)); (len(got) > 0) != c.wider {
			t.Errorf("Widen to %v = %v, want widening: %v", c.layers, got, c.wider)
		}
	}
}

func TestChosenPaths(t *testing.T) {
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
				t.Errorf("Chosen(%s) does not match %s", c.names, p)
			}
		}
		for p := range strings.FieldsSeq(c.out) {
			if in(p) {
				t.Errorf("Chosen(%s) matches %s", c.names, p)
			}
		}
	}
	// A name may contain characters that are not allowed in a glob.
	if in, err := policy.Chosen([]string{"a[1].txt"}); err != nil || !in("a[1].txt") || in("a1.txt") {
		t.Errorf("Chosen of a name with brackets does not match exactly that name: %v", err)
	}
	for _, bad := range []string{"/etc/passwd", "a**/b", "*/../x"} {
		if _, err := policy.Chosen([]string{bad}); err == nil {
			t.Errorf("Chosen accepted %s", bad)
		}
	}
	if in, err := policy.Chosen(nil); err != nil || !in("anything") {
		t.Error("Chosen without names does not match everything")
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
			t.Errorf("ExplainExport(%s, removed %v) = %+v with the steps %+v, want %s by %s", c.path, c.removed, d, steps, c.effect, c.rule)
		}
	}
}
