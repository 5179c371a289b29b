package sandbox_test

import (
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/sandbox"
)

// TestAllowListAndOtherHosts checks the effect for hosts in the list and for other hosts, which
// depends on the network and the documents of the request.
func TestAllowListAndOtherHosts(t *testing.T) {
	t.Parallel()
	listed := []string{"listed.example"}
	ask := policy.Document{Policy: "v1", Network: policy.Network{Unlisted: "ask"}}
	files := policy.Document{Policy: "v1", Filesystem: policy.Filesystem{Protect: []string{"**/Makefile"}}}
	for name, c := range map[string]struct {
		access sandbox.Access
		listed egress.Effect
		other  egress.Effect
	}{
		"nothing":               {sandbox.Access{}, egress.Deny, egress.Deny},
		"none":                  {sandbox.Access{Net: sandbox.NetNone}, egress.Deny, egress.Deny},
		"a list":                {sandbox.Access{Allow: listed}, egress.Allow, egress.Deny},
		"a list and files":      {sandbox.Access{Allow: listed, Documents: []policy.Document{files}}, egress.Allow, egress.Deny},
		"a list and a document": {sandbox.Access{Allow: listed, Documents: []policy.Document{ask}}, egress.Allow, egress.Ask},
		"a list and the policy": {sandbox.Access{Net: sandbox.NetPolicy, Allow: listed}, egress.Allow, egress.Ask},
		"a list under strict":   {sandbox.Access{Net: sandbox.NetPolicy, Allow: listed, Level: "strict"}, egress.Allow, egress.Deny},
		"a list and dev":        {sandbox.Access{Net: sandbox.NetDev, Allow: listed}, egress.Allow, egress.Deny},
		"a list and open":       {sandbox.Access{Net: sandbox.NetOpen, Allow: listed}, egress.Allow, egress.Allow},
		"the policy":            {sandbox.Access{Net: sandbox.NetPolicy}, egress.Ask, egress.Ask},
	} {
		p, _, err := c.access.Compile(sandbox.Settings{})
		if err != nil {
			t.Errorf("%s: Compile: %v", name, err)
			continue
		}
		for host, want := range map[string]egress.Effect{"listed.example": c.listed, "other.example": c.other} {
			d, _ := p.Request(policy.Request{Host: host, Port: 443, Method: "GET", Path: "/", TLS: true})
			if d.Effect != want {
				t.Errorf("%s: %s is %s by %s, want %s", name, host, d.Effect, d.Rule, want)
			}
		}
	}
}
