package policy_test

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/packages"
)

func TestTaskCannotLoosenInspection(t *testing.T) {
	a := npmVersion("a", "1.0.0")
	for name, c := range map[string]struct {
		organisation, task string
		layer              string // of the rule; empty if there is none
		refuse, tolerated  bool
	}{
		"without the setting":            {`cache: [npm]`, `publish: deny`, "", false, false},
		"only exceptions":                {`cache: [npm]`, `tolerated: ["npm:a"]`, "", false, false},
		"report":                         {`content: report`, `publish: deny`, policy.LayerOrganisation, false, false},
		"refuse":                         {`content: refuse`, `publish: deny`, policy.LayerOrganisation, true, false},
		"the task cannot loosen it":      {`content: refuse`, `content: report`, policy.LayerOrganisation, true, false},
		"the task tightens it":           {`content: report`, `content: refuse`, policy.LayerTask, true, false},
		"tolerated by the rule's layer":  {`content: refuse, tolerated: ["npm:a@1.*"]`, `publish: deny`, policy.LayerOrganisation, true, true},
		"tolerated by both layers":       {`content: refuse, tolerated: ["npm:a"]`, `content: refuse, tolerated: ["npm:**"]`, policy.LayerOrganisation, true, true},
		"tolerated by one of two rules":  {`content: refuse`, `content: refuse, tolerated: ["npm:a"]`, policy.LayerOrganisation, true, false},
		"tolerated by the task alone":    {`content: refuse`, `tolerated: ["npm:a"]`, policy.LayerOrganisation, true, false},
		"another package is":             {`content: refuse, tolerated: ["npm:b"]`, `publish: deny`, policy.LayerOrganisation, true, false},
		"another version is":             {`content: refuse, tolerated: ["npm:a@2.*"]`, `publish: deny`, policy.LayerOrganisation, true, false},
		"each list must name it":         {`content: refuse, tolerated: ["npm:a"]`, `tolerated: ["npm:b"]`, policy.LayerOrganisation, true, false},
		"report of another layer is not": {`content: report`, `content: refuse, tolerated: ["npm:a"]`, policy.LayerTask, true, true},
	} {
		rule := packagePolicy(t, c.organisation, c.task).Content(testLocks)
		if rule == nil {
			if c.layer != "" {
				t.Errorf("%s: there is no rule", name)
			}
			continue
		}
		if rule.Layer != c.layer || rule.Refuse != c.refuse || rule.Tolerated(a) != c.tolerated {
			t.Errorf("%s: got refuse %v of the layer %q, tolerated %v", name, rule.Refuse, rule.Layer, rule.Tolerated(a))
		}
	}
	p := packagePolicy(t, `cache: [npm]`, `content: report`)
	if got := p.Content(testLocks).Known(packages.NPM); len(got) != 1 || got[0] != "a" {
		t.Errorf("known packages: got %q, want those of the lockfiles, each once", got)
	}
	if got := p.Content(nil).Known(packages.NPM); got != nil {
		t.Errorf("without lockfiles: got %q", got)
	}
}

func TestWeakerInspectionIsWidening(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string
		want     string // part of the report; empty if the change is none
	}{
		"refuse removed":   {`content: refuse`, `publish: deny`, "refuse was removed"},
		"report removed":   {`content: report`, `publish: deny`, "report was removed"},
		"only reported":    {`content: refuse`, `content: report`, "refuse becomes report"},
		"stricter":         {`content: report`, `content: refuse`, ""},
		"added":            {`offline: false`, `content: refuse, tolerated: ["npm:a"]`, ""},
		"exception added":  {`content: refuse`, `content: refuse, tolerated: ["npm:a"]`, "npm:a was added"},
		"more exceptions":  {`content: refuse, tolerated: ["npm:a"]`, `content: refuse, tolerated: ["npm:**"]`, "more than npm:a"},
		"fewer exceptions": {`content: refuse, tolerated: ["npm:**"]`, `content: refuse, tolerated: ["npm:a"]`, ""},
	} {
		got := strings.Join(policy.Widen(packagePolicy(t, `cache: [npm]`, c.from), packagePolicy(t, `cache: [npm]`, c.to)), "; ")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestInspectionSettingsAreChecked(t *testing.T) {
	for settings, warns := range map[string]string{
		`content: refuse`:                                         "packages.cache lists no ecosystem",
		`content: report, cache: [npm, apt]`:                      "not inspected",
		`content: report, cache: [oci]`:                           "not inspected",
		`content: report, cache: [npm], tolerated: ["npm:a"]`:     "no effect without packages.content: refuse",
		`content: refuse, cache: [npm, go], tolerated: ["npm:a"]`: "",
	} {
		d, err := policy.Parse([]byte("policy: v1\npackages: {" + settings + "}\n"))
		if err != nil {
			t.Fatal(err)
		}
		_, warnings, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: d})
		if err != nil || warns == "" && len(warnings) > 0 || warns != "" && (len(warnings) != 1 || !strings.Contains(warnings[0].Text, warns)) {
			t.Errorf("%s: got the warnings %+v (%v), want %q", settings, warnings, err, warns)
		}
	}
	for _, bad := range []string{`content: deny`, `content: true`, `tolerated: []`, `tolerated: [lodash]`, `tolerated: ["cpan:a"]`} {
		if _, err := policy.Parse([]byte("policy: v1\npackages: {" + bad + "}\n")); err == nil {
			t.Errorf("Parse accepted the package setting %s", bad)
		}
	}
}
