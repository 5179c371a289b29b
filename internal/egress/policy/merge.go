package policy

import (
	"slices"
	"strconv"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/packages"
)

// merge combines the layers into one document, for decisions that no block makes.
func (p *Policy) merge(warnings *[]Warning) error {
	m := &p.merged
	m.Policy, m.Level = "v1", p.level
	var s scalars
	for _, l := range p.layers {
		warn := func(field, text string) {
			*warnings = append(*warnings, Warning{Layer: l.Kind, Field: field, Text: text})
		}
		d := l.Document
		s.merge(l, warn)
		if d.Name != "" {
			m.Name = d.Name
		}
		m.Network.Hosts = append(m.Network.Hosts, d.Network.Hosts...)
		m.Git.Remotes = append(m.Git.Remotes, d.Git.Remotes...)
		m.Secrets.Bind = append(m.Secrets.Bind, d.Secrets.Bind...)
		m.Secrets.MaxTTL = smaller(m.Secrets.MaxTTL, d.Secrets.MaxTTL)
		m.Approvals.Quorum = max(m.Approvals.Quorum, d.Approvals.Quorum)
		m.Approvals.Timeout = smaller(m.Approvals.Timeout, d.Approvals.Timeout)
		m.Redact.Outputs = either(m.Redact.Outputs, d.Redact.Outputs)
		m.Redact.Patterns = either(m.Redact.Patterns, d.Redact.Patterns)
		m.Filesystem.merge(d.Filesystem, warn)
		p.export.merge(l, warn)
		p.installs.merge(l)
	}
	s.into(m)
	p.settings.into(m)
	p.export.into(m)
	p.installs.into(m)
	for i := range m.Secrets.Bind {
		b := &m.Secrets.Bind[i]
		b.Port = b.port()
		b.TTL = smaller(b.TTL, m.Secrets.MaxTTL)
		p.binds[endpoint{b.Host, b.Port}] = true
	}
	for _, r := range m.Git.Remotes {
		p.remotes[r.Host] = true
	}
	return p.conflicts(warnings)
}

// conflicts finds conflicts between layers: two bindings for one header, and a binding to a host
// that another layer makes a tunnel.
func (p *Policy) conflicts(warnings *[]Warning) error {
	c := &checker{}
	c.secrets(&p.merged.Secrets, &Network{})
	c.registries(p.merged.Packages.Registries)
	p.installs.lockedWarnings(warnings)
	p.installs.contentWarnings(warnings)
	p.installs.scanWarnings(warnings)
	for i, b := range p.merged.Secrets.Bind {
		field := "secrets.bind[" + strconv.Itoa(i) + "]"
		switch got := p.Connect(b.Host, b.Port); {
		case got.Tunnel:
			c.bad(field, "%s is a tunnel, and the gateway cannot set a header in one", b.Host)
		case got.Effect == egress.Deny:
			*warnings = append(*warnings, Warning{Layer: LayerTask, Field: field, Text: b.Host + " cannot be reached, so the secret " + b.Name + " goes nowhere"})
		}
	}
	if a := &p.installs.advisories; a.level != packages.SeverityUnknown && slices.Contains(p.installs.cache, string(packages.OCI)) {
		*warnings = append(*warnings, Warning{Layer: a.layer, Field: "packages.advisories", Text: "images are not judged by advisories, because no database is about images"})
	}
	return c.err()
}

// Binds returns the bindings of all layers, with their defaults filled in.
func (p *Policy) Binds() []Bind { return p.merged.Secrets.Bind }

// scalars are the settings with a single value that are not about the network.
type scalars struct {
	isolation, containers, mode, tracked, tools, approve, onTimeout setting
}

func (s *scalars) merge(l Layer, warn func(field, text string)) {
	d := &l.Document
	s.isolation.merge(l, "isolation.at_least", d.Isolation.AtLeast, boundaries, warn)
	s.containers.merge(l, "isolation.containers", d.Isolation.Containers, containers, warn)
	s.mode.merge(l, "filesystem.workspace.mode", d.Filesystem.Workspace.Mode, modes, warn)
	s.tracked.merge(l, "filesystem.tracked", d.Filesystem.Tracked, tracked, warn)
	s.tools.merge(l, "filesystem.tools", d.Filesystem.Tools, tools, warn)
	s.approve.merge(l, "secrets.approve", d.Secrets.Approve, approve, warn)
	s.onTimeout.merge(l, "approvals.on_timeout", string(d.Approvals.OnTimeout), effects, warn)
}

func (s *scalars) into(m *Document) {
	m.Isolation.AtLeast = s.isolation.value
	m.Isolation.Containers = s.containers.value
	m.Filesystem.Workspace.Mode = s.mode.value
	m.Filesystem.Tracked = s.tracked.value
	m.Filesystem.Tools = s.tools.value
	m.Secrets.Approve = s.approve.value
	m.Approvals.OnTimeout = s.onTimeout.effect()
}

func (s setting) effect() egress.Effect { return egress.Effect(s.value) }

func (s *settings) into(m *Document) {
	m.Network.Unlisted, m.Network.Writes = s.unlisted.value, s.writes.value
	m.Network.Tunnels, m.Network.WebSocket = s.tunnels.effect(), s.webSocket.effect()
	m.Git.Fetch = s.fetch.effect()
	m.Git.Push = Push{Unlisted: s.pushNew.effect(), Delete: s.pushDelete.effect(), Force: s.pushForce.effect()}
	m.Packages.Publish = s.publish.effect()
}

// either returns the setting that is true, if one of them is. Otherwise it returns the lower one,
// or upper if that is nil. nil means unset.
func either(upper, lower *bool) *bool {
	if lower == nil || upper != nil && *upper {
		return upper
	}
	return lower
}
