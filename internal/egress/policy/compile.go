package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/crannog/crannog/internal/fault"
)

// fallback is the level of documents that name none.
const fallback = "standard"

// Compile compiles documents to a policy, from the upper layer to the lower. The level is the
// strictest that any of them names, or standard. Compile adds it, so callers need not. Warnings are
// for the authors of the documents.
func Compile(layers ...Layer) (*Policy, []Warning, error) {
	layers, err := withLevel(layers)
	if err != nil {
		return nil, nil, err
	}
	p := &Policy{layers: layers, level: layers[0].Document.Level, binds: map[endpoint]bool{}, remotes: map[string]bool{}}
	var warnings []Warning
	for _, l := range layers {
		warn := func(field, text string) {
			warnings = append(warnings, Warning{Layer: l.Kind, Field: field, Text: text})
		}
		if l.Document.Level != "" && l.Document.Level != p.level {
			warn("level", l.Document.Level+" is looser than "+p.level+", which counts")
		}
		p.settings.merge(l, warn)
		if l.Kind == LayerLevel || l.Kind == LayerOrganisation {
			p.top.merge(l, func(string, string) {})
		}
		listsNetwork := len(l.Document.Network.Hosts) > 0 || l.Document.Network.Unlisted != ""
		switch {
		case l.Kind == LayerLevel || !listsNetwork:
		case l.Kind == LayerOrganisation:
			p.ceilings = append(p.ceilings, newTable(l))
		default:
			p.grants = append(p.grants, newTable(l))
			p.granting = true
		}
		warnings = append(warnings, l.warnings()...)
	}
	if err := p.merge(&warnings); err != nil {
		return nil, nil, err
	}
	if p.digest, err = digest(layers); err != nil {
		return nil, nil, err
	}
	return p, warnings, nil
}

// withLevel checks each document and puts the level first.
func withLevel(layers []Layer) ([]Layer, error) {
	order := []string{LayerLevel, LayerOrganisation, LayerProject, LayerTask}
	last, strictest := 0, ""
	var given *Layer
	for i, l := range layers {
		at := slices.Index(order, l.Kind)
		if at < last {
			return nil, fault.Newf(fault.Invalid, "policy_invalid", "layer %q is unknown or not in its place; the order is level, organisation, project, task", clip(l.Kind))
		}
		last = at
		if err := l.Document.check(nil); err != nil {
			return nil, err
		}
		if l.Kind == LayerLevel {
			if given != nil || !complete(l.Document) {
				return nil, invalid("a level is one document, names itself, has every setting and lists no hosts")
			}
			given = &layers[i]
		}
		if slices.Index(levels, l.Document.Level) > slices.Index(levels, strictest) {
			strictest = l.Document.Level
		}
	}
	if given != nil && given.Document.Level == strictest {
		return slices.Clone(layers), nil
	}
	if strictest == "" {
		strictest = fallback
	}
	level, err := Level(strictest)
	if err != nil {
		return nil, err
	}
	below := slices.DeleteFunc(slices.Clone(layers), func(l Layer) bool { return l.Kind == LayerLevel })
	return append([]Layer{{Kind: LayerLevel, Document: level}}, below...), nil
}

// complete reports whether a document has every setting, as a level must.
func complete(d Document) bool {
	if d.Level == "" || d.Network.Hosts != nil || d.Git.Remotes != nil || d.Secrets.Bind != nil ||
		d.Redact.Outputs == nil || d.Redact.Patterns == nil || d.Filesystem.Workspace.Writable == nil ||
		d.Approvals.Quorum == 0 || d.Approvals.Timeout == 0 || d.Secrets.MaxTTL == 0 {
		return false
	}
	n, g := d.Network, d.Git
	return !slices.Contains([]string{
		d.Isolation.AtLeast, d.Filesystem.Workspace.Mode, n.Unlisted, n.Writes, string(n.Tunnels), string(n.WebSocket),
		string(g.Fetch), string(g.Push.Unlisted), string(g.Push.Delete), string(g.Push.Force), string(d.Packages.Publish),
		d.Secrets.Approve, string(d.Approvals.OnTimeout),
	}, "")
}

// digest returns a hash of everything that affects decisions, in the fixed order of encoding/json.
func digest(layers []Layer) (string, error) {
	b, err := json.Marshal(layers)
	if err != nil {
		return "", fault.Wrap(err, fault.Internal, "internal", "policy has no digest")
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}
