package policy_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
)

func TestFromE2BAllowAndDenyLists(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		name        string
		allow, deny []string
		internet    *bool
		want        map[string]string
	}{
		{"no fields allow everything", nil, nil, nil, map[string]string{"GET https://a.test/": "allow", "1.1.1.1:53": "allow", "a.test:5432": "allow"}},
		{"internet", nil, nil, &yes, map[string]string{"GET https://a.test/": "allow"}},
		{"no internet", nil, nil, &no, map[string]string{"GET https://a.test/": "deny", "1.1.1.1:53": "deny"}},
		{"no internet with allowed entries", []string{"1.1.1.1", "a.test"}, nil, &no, map[string]string{"GET https://a.test/": "allow", "1.1.1.1:53": "allow", "1.1.1.2:53": "deny", "GET https://b.test/": "deny"}},
		{"all denied", nil, []string{"0.0.0.0/0"}, nil, map[string]string{"GET https://a.test/": "deny", "1.1.1.1:53": "deny"}},
		{"domains", []string{"A.test", "*.b.test"}, []string{"0.0.0.0/0", "8.8.8.8"}, nil, map[string]string{
			"GET https://a.test/": "allow", "GET http://a.test/": "allow", "POST https://x.b.test/": "allow", "GET https://b.test/": "deny", "a.test:5432": "deny", "8.8.8.8:53": "deny"}},
		{"some denied", nil, []string{"8.8.8.0/24"}, nil, map[string]string{"8.8.8.8:53": "deny", "8.8.4.4:53": "allow", "GET https://a.test/": "allow"}},
		{"allow beats deny", []string{"8.8.0.0/16"}, []string{"8.8.8.0/24"}, nil, map[string]string{"8.8.8.8:53": "allow"}},
		{"allowed inside denied", []string{"8.8.8.8"}, []string{"8.8.8.0/24"}, nil, map[string]string{"8.8.8.8:53": "allow", "8.8.8.9:53": "deny"}},
		{"same entry in both lists", []string{"8.8.8.8"}, []string{"8.8.8.8/32"}, nil, map[string]string{"8.8.8.8:53": "allow"}},
	} {
		d, _, err := policy.FromE2B(c.allow, c.deny, c.internet, nil)
		if err != nil {
			t.Errorf("%s: FromE2B returned %v", c.name, err)
			continue
		}
		p := compile(t, ofTask(d))
		for request, want := range c.want {
			if got := decide(t, p, request); string(got.Effect) != want {
				t.Errorf("%s: %s is %s by %s, want %s", c.name, request, got.Effect, got.Rule, want)
			}
		}
	}
}

// A name must not lead to a denied address, and a block of private addresses allows none of them.
func TestDeniedAddressesApplyToNames(t *testing.T) {
	d, _, err := policy.FromE2B([]string{"10.0.0.0/8"}, []string{"8.8.8.0/24"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := compile(t, ofTask(d))
	if got, refused := p.Refuses(netip.MustParseAddr("8.8.8.8"), 443); !refused || got.Effect != "deny" {
		t.Errorf("Refuses for a denied address returned %+v, want a denial", got)
	}
	if _, refused := p.Refuses(netip.MustParseAddr("8.8.4.4"), 443); refused {
		t.Error("Refuses denies an address beside the denied ones")
	}
	if c := p.Connect("10.1.2.3", 80); len(c.Private) != 0 || !c.Tunnel {
		t.Errorf("private addresses are allowed: %+v", c)
	}
}

func TestFromE2BRejectsInvalidFields(t *testing.T) {
	many := policy.Transforms{}
	for _, c := range "abcdefghijk" {
		many[string(c)+".test"] = nil
	}
	for _, c := range []struct {
		allow, deny []string
		rules       policy.Transforms
		want        string
	}{
		{nil, []string{"a.test"}, nil, "invalid denied CIDR a.test"},
		{[]string{"a.test"}, nil, nil, "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic."},
		{[]string{"*"}, []string{"0.0.0.0/0"}, nil, "invalid allowed domain *"},
		{nil, nil, many, "at most 10 domains"},
		{nil, nil, policy.Transforms{"*.a.test": nil}, "not an exact domain"},
		{nil, nil, policy.Transforms{"a.test": {{}, {}}}, "at most one transform"},
		{nil, nil, policy.Transforms{"a.test": {{"X": strings.Repeat("x", 2049)}}}, "at most 2048"},
		{nil, nil, policy.Transforms{"a.test": {{"Host": "b.test"}}}, "cannot have the header"},
		{nil, nil, policy.Transforms{"a.test": {{"X": "a\nb"}}}, "cannot have the header"},
		{nil, nil, policy.Transforms{"a.test": {{"X": "${e2b.secrets.A}${e2b.secrets.B}"}}}, "one placeholder"},
		{nil, nil, policy.Transforms{"a.test": {{"X": "${e2b.identity.tokens.A}"}}}, "the only placeholder is ${e2b.secrets.NAME}"},
	} {
		_, _, err := policy.FromE2B(c.allow, c.deny, nil, c.rules)
		if err == nil || !strings.Contains(err.Error(), c.want) || fault.KindOf(err) == fault.Internal {
			t.Errorf("FromE2B returned %v, want an error with %q", err, c.want)
		}
	}
}

func TestFromE2BTransforms(t *testing.T) {
	d, fixed, err := policy.FromE2B(nil, nil, nil, policy.Transforms{"a.test": {{"Authorization": "Bearer ${e2b.secrets.KEY}", "X-Team": "blue"}}})
	if err != nil {
		t.Fatal(err)
	}
	p := compile(t, ofTask(d))
	if b := p.Binds(); len(b) != 2 || b[1].Name != "e2b.header.1" || b[0].Name != "KEY" || b[0].Format != "Bearer {}" || b[0].Header != "Authorization" || b[0].Host != "a.test" {
		t.Errorf("the bindings are %+v, want KEY and the fixed header of a.test", b)
	}
	if len(fixed) != 1 || fixed[0].Value != "blue" || fixed[0].Header != "X-Team" || fixed[0].Host != "a.test" || fixed[0].Name != "e2b.header.1" {
		t.Errorf("the fixed headers are %+v, want X-Team: blue of a.test", fixed)
	}
	if !p.Connect("a.test", 443).Inspect || p.Connect("b.test", 443).Inspect {
		t.Error("connections to the header's host are not decrypted, or those to another host are")
	}
}
