package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/packages"
)

// packagePolicy compiles an organisation's and a task's settings about packages.
func packagePolicy(t *testing.T, organisation, task string) *policy.Policy {
	t.Helper()
	var layers []policy.Layer
	for kind, text := range map[string]string{policy.LayerOrganisation: organisation, policy.LayerTask: task} {
		d, err := policy.Parse([]byte("policy: v1\npackages: {" + text + "}\n"))
		if err != nil {
			t.Fatal(err)
		}
		layer := policy.Layer{Kind: kind, Document: d}
		if kind == policy.LayerOrganisation {
			layers = append([]policy.Layer{layer}, layers...)
		} else {
			layers = append(layers, layer)
		}
	}
	p, _, err := policy.Compile(layers...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTaskCannotLoosenPackageRules(t *testing.T) {
	const organisation = `cache: [npm], min_age: 48h, allow: ["npm:@acme/**", "npm:a"], deny: ["npm:@acme/bad"], offline: true`
	p := packagePolicy(t, organisation, `min_age: 1h, allow: ["npm:**"], offline: false`)
	now := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	gate := p.Gate(func() time.Time { return now })
	for name, c := range map[string]struct {
		age  time.Duration
		rule string
	}{
		"a": {72 * time.Hour, ""}, "@acme/good": {72 * time.Hour, ""}, "@acme/bad": {72 * time.Hour, policy.RuleForbidden},
		"b": {72 * time.Hour, policy.RuleInstall}, "@acme/new": {2 * time.Hour, policy.RuleMinAge},
	} {
		got := ""
		if d := gate(packages.Artifact{Ecosystem: packages.NPM, Name: name, Version: "1.0.0"}, packages.Version{Published: now.Add(-c.age)}, true); d != nil {
			got = d.Rule
		}
		if got != c.rule {
			t.Errorf("%s is denied by %q, want %q", name, got, c.rule)
		}
	}
	if d := gate(packages.Artifact{Ecosystem: packages.NPM, Name: "a", Version: "1.0.0"}, packages.Version{}, true); d == nil || d.Rule != policy.RuleMinAge {
		t.Errorf("a version with an unknown time is denied by %+v, want %s", d, policy.RuleMinAge)
	}
	if _, ok := p.Registry("registry.npmjs.org"); !ok || !p.Offline() {
		t.Error("the task switched off the cache or offline")
	}
	if wider := policy.Widen(p, packagePolicy(t, `cache: [npm]`, `min_age: 1h`)); len(wider) != 5 {
		t.Errorf("Widen reports %d changes, want 5: %s", len(wider), strings.Join(wider, "; "))
	}
	if wider := policy.Widen(p, p); len(wider) != 0 {
		t.Errorf("Widen for the same policy = %v, want nothing", wider)
	}
}

func TestParseRejectsInvalidPackageSettings(t *testing.T) {
	for _, bad := range []string{
		`cache: [cpan]`, `cache: []`, `min_age: 9000h`, `allow: [lodash]`, `allow: ["cpan:a"]`, `deny: ["npm:a@"]`, `deny: ["npm:"]`,
		`registries: [{host: "*.test", ecosystem: npm}]`, `registries: [{host: r.test}]`, `registries: [{host: r.test, ecosystem: cpan}]`,
	} {
		if _, err := policy.Parse([]byte("policy: v1\npackages: {" + bad + "}\n")); err == nil {
			t.Errorf("Parse accepted the package setting %s", bad)
		}
	}
	own := packagePolicy(t, `cache: [npm], registries: [{host: npm.acme.test, ecosystem: npm}]`, `publish: deny`)
	if e, ok := own.Registry("npm.acme.test"); !ok || e != packages.NPM {
		t.Errorf("Registry of a listed host = %q %v, want npm", e, ok)
	}
	if _, ok := own.Registry("other.test"); ok {
		t.Error("a host that is not listed counts as a registry")
	}
	if _, ok := packagePolicy(t, `publish: ask`, `publish: deny`).Registry("registry.npmjs.org"); ok {
		t.Error("a policy without packages.cache has a cache")
	}
}

// A task cannot lift a rule of its organisation with an exception of its own. The control is the
// same exception in the organisation's document.
func TestExceptionNeedsLayerOfRule(t *testing.T) {
	a := packages.Artifact{Ecosystem: packages.Go, Name: "acme.test/a", Version: "v1.0.0"}
	for name, c := range map[string]struct {
		rule, exception string
		passes          func(p *policy.Policy) bool
	}{
		"unverified": {`cache: [go]`, `unverified: ["go:**"]`, func(p *policy.Policy) bool { return p.Unverified(a) }},
		"undated": {`cache: [go], min_age: 48h`, `undated: ["go:**"]`, func(p *policy.Policy) bool {
			return p.Gate(time.Now)(a, packages.Version{}, true) == nil
		}},
		"unlocked": {`cache: [go], lockfile_only: true`, `unlocked: ["go:**"]`, func(p *policy.Policy) bool {
			return p.LockedGate(p.Gate(time.Now), nil)(a, packages.Version{}, true) == nil
		}},
	} {
		if !c.passes(packagePolicy(t, c.rule+", "+c.exception, `publish: deny`)) {
			t.Errorf("%s: the organisation's own exception has no effect", name)
		}
		if c.passes(packagePolicy(t, c.rule, c.exception)) {
			t.Errorf("%s: the task lifts the organisation's rule", name)
		}
		if c.passes(packagePolicy(t, c.rule+", "+c.exception, c.rule)) {
			t.Errorf("%s: the organisation's exception lifts the task's own rule", name)
		}
	}
}

// A layer cannot except more packages than another one does, and exceptions are a widening.
func TestExceptionsOfPackageRules(t *testing.T) {
	now := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	p := packagePolicy(t, `cache: [go], min_age: 48h, unverified: ["go:acme.test/**"], undated: ["go:acme.test/**"]`, `unverified: ["go:**"]`)
	inside, outside := packages.Artifact{Ecosystem: packages.Go, Name: "acme.test/a", Version: "v1.0.0"}, packages.Artifact{Ecosystem: packages.Go, Name: "other.test/a", Version: "v1.0.0"}
	if !p.Unverified(inside) || p.Unverified(outside) {
		t.Errorf("Unverified: got %v and %v, want only the package of the organisation's list", p.Unverified(inside), p.Unverified(outside))
	}
	gate := p.Gate(func() time.Time { return now })
	for name, c := range map[string]struct {
		a      packages.Artifact
		v      packages.Version
		denied bool
	}{
		"undated and listed":           {inside, packages.Version{}, false},
		"undated":                      {outside, packages.Version{}, true},
		"young and listed":             {inside, packages.Version{Published: now.Add(-time.Hour)}, true},
		"certainly old":                {outside, packages.Version{NotAfter: now.Add(-72 * time.Hour)}, false},
		"perhaps young":                {outside, packages.Version{NotAfter: now.Add(-time.Hour)}, true},
		"perhaps young, but it is not": {outside, packages.Version{Published: now.Add(-72 * time.Hour), NotAfter: now}, false},
	} {
		if d := gate(c.a, c.v, true); (d != nil) != c.denied {
			t.Errorf("%s: got %+v, want denied %v", name, d, c.denied)
		}
	}
	plain := packagePolicy(t, `cache: [go], min_age: 48h`, `offline: false`)
	if plain.Unverified(inside) {
		t.Error("without packages.unverified: a package needs no verification")
	}
	if wider := policy.Widen(plain, p); len(wider) != 2 {
		t.Errorf("Widen reports %v, want two changes", wider)
	}
	if wider := policy.Widen(p, plain); len(wider) != 0 {
		t.Errorf("Widen without exceptions reports %v, want nothing", wider)
	}
}
