package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
)

// TestContainersNeedEveryLayer checks that container engines run only if no layer denies them, and
// that a lower layer cannot allow what an upper one denies.
func TestContainersNeedEveryLayer(t *testing.T) {
	says := func(kind, level, containers string) policy.Layer {
		return policy.Layer{Kind: kind, Document: policy.Document{Policy: "v1", Name: kind, Level: level, Isolation: policy.Isolation{Containers: containers}}}
	}
	const org, project, task = policy.LayerOrganisation, policy.LayerProject, policy.LayerTask
	for name, c := range map[string]struct {
		layers  []policy.Layer
		allowed bool
		warns   bool
	}{
		"minimal":                            {[]policy.Layer{says(task, "minimal", "")}, true, false},
		"light":                              {[]policy.Layer{says(task, "light", "")}, true, false},
		"standard":                           {[]policy.Layer{says(task, "standard", "")}, true, false},
		"strict":                             {[]policy.Layer{says(task, "strict", "")}, false, false},
		"strict with allow":                  {[]policy.Layer{says(task, "strict", "allow")}, false, true},
		"the organisation denies":            {[]policy.Layer{says(org, "standard", "deny"), says(task, "", "")}, false, false},
		"a task allows against organisation": {[]policy.Layer{says(org, "standard", "deny"), says(task, "minimal", "allow")}, false, true},
		"a task allows against the project":  {[]policy.Layer{says(org, "standard", "allow"), says(project, "", "deny"), says(task, "", "allow")}, false, true},
		"a task denies":                      {[]policy.Layer{says(org, "standard", "allow"), says(task, "", "deny")}, false, false},
		"all allow":                          {[]policy.Layer{says(org, "standard", "allow"), says(task, "", "allow")}, true, false},
	} {
		p, warnings, err := policy.Compile(c.layers...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		warned := slices.ContainsFunc(warnings, func(w policy.Warning) bool { return w.Field == "isolation.containers" })
		if p.Containers() != c.allowed || warned != c.warns {
			t.Errorf("%s: allowed %t, warned %t; want %t, %t", name, p.Containers(), warned, c.allowed, c.warns)
		}
	}
}

func TestContainersSettingIsChecked(t *testing.T) {
	if _, err := policy.Parse([]byte("policy: v1\nisolation: {containers: ask}\n")); err == nil || !strings.Contains(err.Error(), "isolation.containers") {
		t.Errorf("got %v, want an error about isolation.containers", err)
	}
}

// TestWidenNamesContainers checks that an approver learns that a policy starts to allow containers.
func TestWidenNamesContainers(t *testing.T) {
	compiled := func(containers string) *policy.Policy {
		p, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: policy.Document{Policy: "v1", Level: "standard", Isolation: policy.Isolation{Containers: containers}}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	named := func(list []string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return strings.HasPrefix(s, "isolation.containers:") })
	}
	if got := policy.Widen(compiled("deny"), compiled("allow")); !named(got) {
		t.Errorf("from deny to allow: got %q", got)
	}
	if got := policy.Widen(compiled("allow"), compiled("deny")); named(got) {
		t.Errorf("from allow to deny: got %q", got)
	}
}
