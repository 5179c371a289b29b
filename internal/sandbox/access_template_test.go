package sandbox_test

import (
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// TestTemplateAccessLimitsRequests checks that a request without an access gets the template's, and
// that the template's access limits all other requests.
func TestTemplateAccessLimitsRequests(t *testing.T) {
	document, err := policy.Hosts("listed.example")
	if err != nil {
		t.Fatal(err)
	}
	secret := document
	secret.Secrets.Bind = []policy.Bind{{Name: "KEY", Host: "listed.example", Header: "X-Key"}}
	type access = sandbox.Access
	for name, test := range map[string]struct {
		template, request access
		reached, denied   string
	}{
		"none, unset":                  {access{Net: sandbox.NetNone}, access{}, "", "listed.example"},
		"none, open":                   {access{Net: sandbox.NetNone}, access{Net: sandbox.NetOpen}, "", "listed.example"},
		"default is none":              {access{Level: "light"}, access{Net: sandbox.NetOpen}, "", "listed.example"},
		"hosts, unset":                 {access{Allow: []string{"listed.example"}}, access{}, "listed.example", "other.example"},
		"hosts, a level":               {access{Allow: []string{"listed.example"}}, access{Level: "standard"}, "listed.example", "other.example"},
		"hosts, open":                  {access{Allow: []string{"listed.example"}}, access{Net: sandbox.NetOpen}, "listed.example", "other.example"},
		"hosts, others":                {access{Allow: []string{"listed.example"}}, access{Allow: []string{"other.example"}}, "", "other.example"},
		"development, open":            {access{Net: sandbox.NetDev}, access{Net: sandbox.NetOpen}, "pypi.org", "other.example"},
		"development and a host":       {access{Net: sandbox.NetDev, Allow: []string{"listed.example"}}, access{Net: sandbox.NetOpen}, "listed.example", "other.example"},
		"open, hosts":                  {access{Net: sandbox.NetOpen}, access{Allow: []string{"listed.example"}}, "listed.example", "other.example"},
		"a document, unset":            {access{Documents: []policy.Document{secret}}, access{}, "listed.example", "other.example"},
		"a document, open":             {access{Documents: []policy.Document{document}}, access{Net: sandbox.NetOpen}, "listed.example", "other.example"},
		"a document, E2B's fields":     {access{Documents: []policy.Document{document}}, access{Net: sandbox.NetOpen, Lists: &sandbox.Lists{}}, "", "other.example"},
		"hosts, an open client of E2B": {access{Allow: []string{"listed.example"}}, e2b(t), "listed.example", "other.example"},
		"none, an open client of E2B":  {access{Net: sandbox.NetNone}, e2b(t), "", "listed.example"},
		"hosts, a client's list":       {access{Allow: []string{"listed.example"}}, e2b(t, "other.example"), "", "other.example"},
	} {
		got, err := test.request.OfTemplate(test.template)
		if err != nil {
			t.Errorf("%s: OfTemplate: %v", name, err)
			continue
		}
		p, _, err := got.Compile(sandbox.Settings{})
		if err != nil {
			t.Errorf("%s: Compile: %v", name, err)
			continue
		}
		if test.reached != "" && !p.Reachable(test.reached) {
			t.Errorf("%s: %s is not reachable", name, test.reached)
		}
		if p.Reachable(test.denied) {
			t.Errorf("%s: %s is reachable", name, test.denied)
		}
		// Closing a sandbox's network preserves the limits for a later change.
		if closed := got.Closed(); len(closed.Within) != len(got.Within) {
			t.Errorf("%s: closed access is within %d documents, want %d", name, len(closed.Within), len(got.Within))
		}
	}
	// The strictest level applies.
	got, err := access{Level: "strict"}.OfTemplate(access{Level: "light"})
	if err != nil {
		t.Fatal(err)
	}
	if p, _, err := got.Compile(sandbox.Settings{}); err != nil || p.Level() != "strict" {
		t.Errorf("policy %v, %v; want level strict", p, err)
	}
	for _, bad := range []access{{Own: "x"}, {Lists: &sandbox.Lists{}}, {Allow: []string{"a.example"}, Documents: []policy.Document{document}}} {
		if err := bad.CheckTemplate(); fault.CodeOf(err) != "template_access" {
			t.Errorf("CheckTemplate of %+v: got error %v", bad, err)
		}
	}
}

// e2b returns the access of a client of E2B's API that allows all, or only some hosts.
func e2b(t *testing.T, allow ...string) sandbox.Access {
	t.Helper()
	var deny []string
	if len(allow) > 0 {
		deny = []string{"0.0.0.0/0"}
	}
	d, _, err := policy.FromE2B(allow, deny, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Access{Net: sandbox.NetPolicy, Documents: []policy.Document{d}, Lists: &sandbox.Lists{AllowOut: allow, DenyOut: deny}}
}
