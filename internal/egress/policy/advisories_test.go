package policy_test

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/packages"
)

func TestTaskCannotLoosenAdvisories(t *testing.T) {
	found := func(id string, s packages.Severity) []packages.Advisory {
		return []packages.Advisory{{ID: id, Aliases: []string{"CVE-" + id}, Severity: s}}
	}
	a := packages.Artifact{Ecosystem: packages.NPM, Name: "a", Version: "1.0.0"}
	for name, c := range map[string]struct {
		organisation, task string
		id                 string
		severity           packages.Severity
		layer              string // of the refusal; empty if it passes
	}{
		"the organisation's level":         {`advisories: high`, `advisories: malware`, "GHSA-1", packages.SeverityHigh, policy.LayerOrganisation},
		"below the level":                  {`advisories: high`, `advisories: malware`, "GHSA-1", packages.SeverityModerate, ""},
		"the task tightens":                {`advisories: high`, `advisories: low`, "GHSA-1", packages.SeverityLow, policy.LayerTask},
		"unknown":                          {`advisories: critical`, `offline: false`, "GHSA-1", packages.SeverityUnknown, policy.LayerOrganisation},
		"unknown at the level malware":     {`advisories: malware`, `offline: false`, "GHSA-1", packages.SeverityUnknown, ""},
		"malware":                          {`advisories: malware`, `offline: false`, "MAL-1", packages.SeverityMalware, policy.LayerOrganisation},
		"accepted by both":                 {`advisories: low, accepted: [GHSA-1]`, `accepted: [ghsa-1, GHSA-2]`, "GHSA-1", packages.SeverityHigh, ""},
		"accepted by the rule's layer":     {`advisories: low, accepted: [GHSA-1]`, `offline: false`, "GHSA-1", packages.SeverityHigh, ""},
		"accepted only by a lower layer":   {`advisories: low`, `accepted: [GHSA-1]`, "GHSA-1", packages.SeverityHigh, policy.LayerOrganisation},
		"accepted by one of two rules":     {`advisories: low, accepted: [GHSA-1]`, `advisories: high`, "GHSA-1", packages.SeverityHigh, policy.LayerOrganisation},
		"accepted by the task alone":       {`advisories: low, accepted: [GHSA-1]`, `accepted: [GHSA-2]`, "GHSA-2", packages.SeverityHigh, policy.LayerOrganisation},
		"accepted by an alias":             {`advisories: low, accepted: [CVE-GHSA-1]`, `offline: false`, "GHSA-1", packages.SeverityHigh, ""},
		"a part of an ID is not accepted":  {`advisories: low, accepted: [GHSA-]`, `offline: false`, "GHSA-1", packages.SeverityHigh, policy.LayerOrganisation},
		"another advisory is not accepted": {`advisories: low, accepted: [GHSA-1]`, `offline: false`, "GHSA-11", packages.SeverityHigh, policy.LayerOrganisation},
	} {
		rule := packagePolicy(t, c.organisation, c.task).Advisories()
		if rule == nil {
			t.Fatalf("%s: there is no rule", name)
		}
		d, layer := rule.Deny(a, found(c.id, c.severity), false), ""
		if d != nil {
			layer = d.Layer
		}
		if layer != c.layer {
			t.Errorf("%s: refused by %q, want %q", name, layer, c.layer)
		}
	}
	if rule := packagePolicy(t, `cache: [npm]`, `accepted: [GHSA-1]`).Advisories(); rule != nil {
		t.Errorf("without packages.advisories there is the rule %+v", rule)
	}
}

func TestWeakerAdvisoriesAreWidening(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string
		want     string // part of the report; empty if the change is none
	}{
		"removed":           {`advisories: high`, `cache: [npm]`, "high was removed"},
		"a higher level":    {`advisories: low`, `advisories: malware`, "low becomes malware"},
		"a lower level":     {`advisories: high`, `advisories: low`, ""},
		"added":             {`cache: [npm]`, `cache: [npm], advisories: low`, ""},
		"one is accepted":   {`advisories: high`, `advisories: high, accepted: [GHSA-1]`, "GHSA-1 was added"},
		"another is":        {`accepted: [GHSA-1]`, `accepted: [GHSA-1, GHSA-2]`, "GHSA-2 was added"},
		"fewer accepted":    {`accepted: [GHSA-1, GHSA-2]`, `accepted: [GHSA-1]`, ""},
		"none accepted":     {`accepted: [GHSA-1]`, `cache: [npm]`, ""},
		"the same, in caps": {`accepted: [GHSA-1]`, `accepted: [ghsa-1]`, ""},
	} {
		got := strings.Join(policy.Widen(packagePolicy(t, c.from, `publish: deny`), packagePolicy(t, c.to, `publish: deny`)), "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: Widen reports %q, want %q", name, got, c.want)
		}
	}
}

func TestParseRejectsInvalidAdvisorySettings(t *testing.T) {
	for _, bad := range []string{
		`advisories: medium`, `advisories: unknown`, `advisories: [high]`, `accepted: []`, `accepted: ["GHSA-*"]`, `accepted: [all]`, `accepted: ["GHSA 1-2"]`,
		`accepted: ["A-` + strings.Repeat("1", 200) + `"]`,
	} {
		if _, err := policy.Parse([]byte("policy: v1\npackages: {" + bad + "}\n")); err == nil {
			t.Errorf("Parse accepted the package setting %s", bad)
		}
	}
	for _, good := range []string{`advisories: malware`, `advisories: low, accepted: [GHSA-35jh-r3h4-6jhm, "CVE-2021-23337", PYSEC-2021-1, "DSA-5000-1"]`} {
		if _, err := policy.Parse([]byte("policy: v1\npackages: {" + good + "}\n")); err != nil {
			t.Errorf("Parse of %s: %v", good, err)
		}
	}
}
