package sandbox_test

import (
	"testing"

	"github.com/crannog/crannog/internal/causeway"
	"github.com/crannog/crannog/internal/causeway/policy"
	"github.com/crannog/crannog/internal/sandbox"
)

// What a list of hosts says about all the others depends on what is said
// beside it.
func TestListedHosts(t *testing.T) {
	t.Parallel()
	listed := []string{"listed.example"}
	ask := policy.Document{Policy: "v1", Network: policy.Network{Unlisted: "ask"}}
	files := policy.Document{Policy: "v1", Filesystem: policy.Filesystem{Protect: []string{"**/Makefile"}}}
	for name, c := range map[string]struct {
		access sandbox.Access
		listed causeway.Effect
		other  causeway.Effect
	}{
		"nothing":               {sandbox.Access{}, causeway.Deny, causeway.Deny},
		"none":                  {sandbox.Access{Net: sandbox.NetNone}, causeway.Deny, causeway.Deny},
		"a list":                {sandbox.Access{Allow: listed}, causeway.Allow, causeway.Deny},
		"a list and files":      {sandbox.Access{Allow: listed, Documents: []policy.Document{files}}, causeway.Allow, causeway.Deny},
		"a list and a document": {sandbox.Access{Allow: listed, Documents: []policy.Document{ask}}, causeway.Allow, causeway.Ask},
		"a list and the policy": {sandbox.Access{Net: sandbox.NetPolicy, Allow: listed}, causeway.Allow, causeway.Ask},
		"a list under strict":   {sandbox.Access{Net: sandbox.NetPolicy, Allow: listed, Level: "strict"}, causeway.Allow, causeway.Deny},
		"a list and dev":        {sandbox.Access{Net: sandbox.NetDev, Allow: listed}, causeway.Allow, causeway.Deny},
		"a list and open":       {sandbox.Access{Net: sandbox.NetOpen, Allow: listed}, causeway.Allow, causeway.Allow},
		"the policy":            {sandbox.Access{Net: sandbox.NetPolicy}, causeway.Ask, causeway.Ask},
	} {
		p, _, err := c.access.Compile(sandbox.Settings{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for host, want := range map[string]causeway.Effect{"listed.example": c.listed, "other.example": c.other} {
			d, _ := p.Request(policy.Request{Host: host, Port: 443, Method: "GET", Path: "/", TLS: true})
			if d.Effect != want {
				t.Errorf("%s: %s is %s by %s, want %s", name, host, d.Effect, d.Rule, want)
			}
		}
	}
}
