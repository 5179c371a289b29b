package agents

import (
	"fmt"
	"slices"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
)

// Preset returns the policy for an agent with these keys. It allows the agent's API, and unlisted
// (deny, ask or allow) decides about all other hosts. It is as strict as the level standard, but
// requires no approval for the use of keys. A user who starts the agent by name has already decided
// that.
func (a Agent) Preset(keys []Key, unlisted string) (policy.Document, error) {
	d, err := policy.Level("standard")
	if err != nil {
		return policy.Document{}, fmt.Errorf("preset of %s: %w", a.Name, err)
	}
	d.Name, d.Level, d.Secrets = "agent/"+a.Name, "light", policy.Secrets{}
	d.Network = policy.Network{Unlisted: unlisted, Writes: "rule", Tunnels: egress.Deny, WebSocket: egress.Allow}
	if unlisted == "allow" {
		// The level light would override Network with stricter rules.
		open := policy.Open()
		d.Level, d.Network = open.Level, open.Network
	}
	a.Grant(&d, keys)
	return d, nil
}

// Grant adds an agent's hosts and bindings to a document, except for hosts that the document
// already mentions.
func (a Agent) Grant(d *policy.Document, keys []Key) {
	hosts := slices.Clone(a.Hosts)
	for _, k := range keys {
		hosts = append(hosts, k.Host)
		bind := policy.Bind{Name: k.Secret, Host: k.Host.Host, Header: k.Header, Format: k.Format}
		if !slices.ContainsFunc(d.Secrets.Bind, func(b policy.Bind) bool { return b.Host == bind.Host }) {
			d.Secrets.Bind = append(d.Secrets.Bind, bind)
		}
	}
	for _, h := range hosts {
		if h.WebSocket == "" {
			h.WebSocket = egress.Deny
		}
		if !slices.ContainsFunc(d.Network.Hosts, func(o policy.Host) bool { return o.Host == h.Host }) {
			d.Network.Hosts = append(d.Network.Hosts, h)
		}
	}
}
