package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
)

func TestTaskCannotLoosenScansAndAges(t *testing.T) {
	for name, c := range map[string]struct {
		organisation, task string
		scan               string // the layer of the rule; empty if there is none
		age                time.Duration
		ageLayer           string
	}{
		"neither":             {`advisories: high`, `publish: deny`, "", 0, ""},
		"the organisation":    {`advisories: high, scan: clamd, advisories_max_age: 24h`, `publish: deny`, policy.LayerOrganisation, 24 * time.Hour, policy.LayerOrganisation},
		"the task":            {`advisories: high`, `scan: clamd, advisories_max_age: 24h`, policy.LayerTask, 24 * time.Hour, policy.LayerTask},
		"a longer age":        {`advisories: high, advisories_max_age: 24h`, `advisories_max_age: 48h`, "", 24 * time.Hour, policy.LayerOrganisation},
		"a shorter age":       {`advisories: high, advisories_max_age: 24h`, `advisories_max_age: 1h`, "", time.Hour, policy.LayerTask},
		"both have the scan":  {`advisories: high, scan: clamd`, `scan: clamd`, policy.LayerOrganisation, 0, ""},
		"the advisories' own": {`advisories_max_age: 24h`, `advisories: low`, "", 24 * time.Hour, policy.LayerOrganisation},
	} {
		p := packagePolicy(t, c.organisation, c.task)
		scan := ""
		if rule := p.Scan(); rule != nil {
			scan = rule.Layer
		}
		if scan != c.scan {
			t.Errorf("%s: the scan is of the layer %q, want %q", name, scan, c.scan)
		}
		if a := p.Advisories(); a.MaxAge != c.age || a.MaxAgeLayer != c.ageLayer {
			t.Errorf("%s: got the age %s of the layer %q, want %s of %q", name, a.MaxAge, a.MaxAgeLayer, c.age, c.ageLayer)
		}
	}
}

func TestWeakerScansAndAgesAreWidening(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string
		want     string // part of the report; empty if the change is none
	}{
		"scan removed": {`scan: clamd`, `publish: deny`, "packages.scan: clamd was removed"},
		"scan added":   {`offline: false`, `scan: clamd`, ""},
		"age removed":  {`advisories: low, advisories_max_age: 24h`, `advisories: low`, "24h becomes unlimited"},
		"longer age":   {`advisories: low, advisories_max_age: 24h`, `advisories: low, advisories_max_age: 48h`, "24h becomes 48h"},
		"shorter age":  {`advisories: low, advisories_max_age: 24h`, `advisories: low, advisories_max_age: 2h`, ""},
		"age added":    {`advisories: low`, `advisories: low, advisories_max_age: 2h`, ""},
	} {
		got := strings.Join(policy.Widen(packagePolicy(t, `cache: [npm]`, c.from), packagePolicy(t, `cache: [npm]`, c.to)), "; ")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestScanAndAgeSettingsAreChecked(t *testing.T) {
	for settings, warns := range map[string]string{
		`scan: clamd`: "packages.cache lists no ecosystem", `scan: clamd, cache: [oci]`: "",
		`cache: [npm], advisories_max_age: 24h`: "no effect without packages.advisories", `cache: [npm], advisories: low, advisories_max_age: 24h`: "",
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
	for _, bad := range []string{`scan: true`, `scan: other`, `advisories_max_age: 1m`, `advisories_max_age: 9000h`, `advisories_max_age: -1h`, `advisories_max_age: soon`} {
		if _, err := policy.Parse([]byte("policy: v1\npackages: {" + bad + "}\n")); err == nil {
			t.Errorf("Parse accepted the package setting %s", bad)
		}
	}
}
