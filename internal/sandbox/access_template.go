package sandbox

import (
	"slices"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
)

// isUnset reports whether a request specifies no access of its own, or only a network open to all
// public hosts. A level alone restricts the template's access.
func (a Access) isUnset() bool {
	return (a.Net == NetDefault || a.Net == NetOpen) && len(a.Allow) == 0 && len(a.Documents) == 0 && a.Lists == nil && len(a.Values) == 0
}

// isOpenE2B reports whether a request of E2B's API allows all public hosts, which is also E2B's
// default.
func (a Access) isOpenE2B() bool {
	if a.Lists == nil || len(a.Lists.AllowOut)+len(a.Lists.DenyOut)+len(a.Lists.Rules)+len(a.Values)+len(a.Allow) > 0 || len(a.Documents) != 1 {
		return false
	}
	d := a.Documents[0]
	return d.Network.Unlisted == "allow" && len(d.Network.Hosts) == 0 && len(d.Secrets.Bind) == 0
}

// OfTemplate returns the access of a sandbox whose template defines an access. A request without an
// access gets the template's. Any other request must list its hosts, and the template's access
// limits it.
func (a Access) OfTemplate(t Access) (Access, error) {
	within, err := t.ceilings()
	if err != nil {
		return a, err
	}
	switch level := a.Level; {
	case a.isOpenE2B():
		level = a.Documents[0].Level
		if a = t; a.Level == "" {
			a.Level = level
		}
	case !a.isUnset():
	case t.Level == "":
		a = t
		a.Level = level
	default:
		a = t
		if level != "" {
			a.Documents = append(slices.Clone(a.Documents), policy.Document{Policy: "v1", Name: "level", Level: level})
		}
	}
	a.Within = within
	return a, nil
}

// ceilings returns an access as documents that limit another access.
func (a Access) ceilings() ([]policy.Document, error) {
	d := policy.Document{Policy: "v1"} // it allows all; the level and the other documents are the limits
	switch {
	case !a.Linked(), a.Net == NetDefault && !a.hasNetworkRules():
		d = policy.None()
	case a.Net == NetDev:
		d = policy.Dev()
	}
	d.Level = a.Level
	if len(a.Allow) > 0 && d.Network.Unlisted != "" {
		hosts, err := policy.Hosts(a.Allow...)
		if err != nil {
			return nil, err
		}
		d.Network.Hosts = append(slices.Clone(d.Network.Hosts), hosts.Network.Hosts...)
	}
	d.Name = "template"
	within := []policy.Document{d}
	for _, document := range a.Documents {
		document.Secrets.Bind = nil // a limit grants no secrets
		within = append(within, document)
	}
	return within, nil
}

// CheckTemplate returns an error if an access is not allowed in a template.
func (a Access) CheckTemplate() error {
	switch {
	case a.Lists != nil, len(a.Values) > 0, a.Own != "":
		return fault.New(fault.Invalid, "template_access", "a template cannot contain secret values").
			WithHint("bind a secret by its name in the policy: crannog secret set NAME")
	case len(a.Allow) > 0 && a.hasNetworkRules():
		return fault.New(fault.Invalid, "template_access", "a template can have a list of hosts or a policy with network rules, but not both").
			WithHint("write the hosts into the policy document")
	}
	return nil
}
