package mcpserver

import (
	"context"

	"github.com/crannog/crannog/api"
)

type policyIn struct{ target }

type policyOut struct {
	Level    string `json:"level"`
	Net      string `json:"network" jsonschema:"none, dev, open or policy."`
	Digest   string `json:"digest"`
	Document string `json:"document" jsonschema:"The effective policy, as YAML."`
	Sandbox  string `json:"sandbox"`
}

func (w *view) addPolicy() {
	add(w, tool{
		name: "policy", title: "Show the policy",
		text: "Show what the sandbox may reach and change, and which actions a person must approve.",
	}, w.policy)
}

func (w *view) policy(ctx context.Context, c *call, in policyIn) (policyOut, error) {
	b, err := c.sandbox(ctx, in.Sandbox)
	if err != nil {
		return policyOut{}, err
	}
	p, err := b.sb.Policy(ctx)
	if err != nil {
		return policyOut{}, err
	}
	info, err := b.sb.Refresh(ctx) // it may have lost its network since
	if err != nil {
		return policyOut{}, err
	}
	net := info.Network
	text, _ := cut(inertInPlace(p.Document), maxText-1000)
	c.printf("%s\n%s", accessText(net, p), text)
	return policyOut{Level: p.Level, Net: net.Net, Digest: p.Digest, Document: text, Sandbox: b.sb.ID()}, nil
}

// accessText describes the sandbox's network in a line.
func accessText(net api.Network, p api.Policy) string {
	switch {
	case !net.Attached:
		return "This sandbox has no network, and cannot get one while it runs."
	case net.Lost:
		return "This sandbox has lost its network and reaches nothing any more."
	}
	return "Network: " + net.Net + ", level: " + p.Level + ". Everything that the document below does not allow is denied, or needs an approval."
}
