package policy

import (
	"net/netip"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/egress"
)

// Reachable reports whether any request to a host could be allowed, so that its name is resolved.
func (p *Policy) Reachable(host string) bool {
	a, isAddress := address(host)
	if !isAddress && !validName(host) {
		return false
	}
	if p.could(host, a, 443) || p.could(host, a, 80) {
		return true
	}
	// A decision is the same for all ports up to the next port at which a block's range begins or
	// ends.
	for _, tables := range [][]*table{p.ceilings, p.grants} {
		for _, t := range tables {
			blocks, _ := t.find(host, a)
			for _, b := range blocks {
				for _, r := range b.ports {
					if p.could(host, a, r.First) || p.could(host, a, r.Last+1) {
						return true
					}
				}
			}
		}
	}
	return false
}

// could reports whether a connection or some request to a port of a host could be allowed.
func (p *Policy) could(host string, a netip.Addr, port int) bool {
	c := p.connect(&lookup{host: host, addr: a, port: port})
	return c.Effect != egress.Deny
}

// Connect returns the decision about a connection. The host is canonical, or an address if there is
// no name for it.
func (p *Policy) Connect(host string, port int) Connection {
	return p.connect(&lookup{host: host, port: port})
}

func (p *Policy) connect(q *lookup) Connection {
	var ok bool
	if q.addr, ok = address(q.host); !ok && !validName(q.host) || q.port < 1 || q.port > 65535 {
		return Connection{Decision: p.floor(RuleName), WebSocket: egress.Deny}
	}
	q.mode = reaches
	v := p.evaluate(q)
	c := Connection{Tunnel: tunnel(v.applicable) || q.addr.IsValid(), WebSocket: p.webSocket(v.applicable).effect(), Limits: v.limits}
	c.Private, c.EncodedSlash = p.private(q), encodedSlash(v.applicable)
	if v.effect != egress.Deny {
		c.Inspect = !c.Tunnel && p.inspects(q, v)
		if c.Inspect {
			v.effect = egress.Allow
			c.Limits.Requests, c.Limits.Window, c.Limits.Bytes = 0, 0, 0
		} else {
			q.mode = opaque
			v = p.evaluate(q)
			c.Limits = v.limits
		}
	}
	if c.Tunnel || anyTunnel(v.applicable) {
		v = stricter(q, v, p.settings.tunnels, RuleTunnels)
	}
	c.Decision = p.decision(q, v)
	return c
}

func anyTunnel(governs []*block) bool {
	return slices.ContainsFunc(governs, func(b *block) bool { return b.tunnel })
}

// tunnel reports whether every block that applies is a tunnel.
func tunnel(governs []*block) bool {
	for _, b := range governs {
		if !b.tunnel {
			return false
		}
	}
	return len(governs) > 0
}

// inspects reports whether TLS must be decrypted. If tunnels are denied, everything is decrypted,
// because a connection that is not decrypted is equivalent to a tunnel.
func (p *Policy) inspects(q *lookup, v verdict) bool {
	if p.settings.tunnels.value == "deny" || p.settings.writes.value != "rule" || p.webSocket(v.applicable).value != "allow" ||
		p.binds[endpoint{q.host, q.port}] || p.guarded(q.host) {
		return true
	}
	if v.needs {
		return true
	}
	if len(v.applicable) == 0 && p.settings.unlisted.value == "read" {
		return true
	}
	return len(p.ceilings) > 0 && p.top.unlisted.value == "read"
}

// Request returns the decision about one request, and its limits.
func (p *Policy) Request(r Request) (egress.Decision, Limits) {
	q := lookup{host: r.Host, port: r.Port, method: r.Method, upgrade: r.WebSocket}
	v, floor := p.request(&q, r)
	if floor != "" {
		return p.floor(floor), Limits{}
	}
	return p.decision(&q, v), v.limits
}

func (p *Policy) request(q *lookup, r Request) (verdict, string) {
	var ok bool
	if q.addr, ok = address(r.Host); !ok && !validName(r.Host) || r.Port < 1 || r.Port > 65535 {
		return verdict{}, RuleName
	}
	if r.Method == "" || r.Method == "CONNECT" || r.Method == "TRACE" {
		return verdict{}, RuleMethod
	}
	if q.path, ok = readPath(r.Path); !ok {
		return verdict{}, RulePath
	}
	if !r.TLS && r.Port == 443 {
		return verdict{}, RulePlain
	}
	v := p.evaluate(q)
	if anyTunnel(v.applicable) {
		v = stricter(q, v, p.settings.tunnels, RuleTunnels)
	}
	if q.path.escaped && !encodedSlash(v.applicable) {
		return verdict{}, RulePath
	}
	if !q.read() || q.upgrade {
		v = stricter(q, v, p.settings.writes, RuleWrites)
	}
	if q.upgrade {
		v = stricter(q, v, p.webSocket(v.applicable), RuleWebSocket)
	}
	return v, ""
}

// stricter applies a setting to a verdict. It never loosens one.
func stricter(q *lookup, v verdict, s setting, rule string) verdict {
	e := egress.Effect(s.value)
	if s.value == "rule" || e.Strictness() <= v.effect.Strictness() {
		return v
	}
	q.note(s.layer, rule, e, "is stricter")
	v.effect, v.rule, v.layer, v.why, v.fixable = e, rule, s.layer, bySetting, false
	return v
}

// webSocket returns the strictest of the policy's setting and the blocks' settings.
func (p *Policy) webSocket(governs []*block) setting {
	s := p.settings.webSocket
	for _, b := range governs {
		if b.webSocket != "" && b.webSocket.Stricter(s.effect()) {
			s = setting{string(b.webSocket), b.layer}
		}
	}
	return s
}

// encodedSlash reports whether every block that applies allows encoded slashes.
func encodedSlash(governs []*block) bool {
	for _, b := range governs {
		if !b.encodedSlash {
			return false
		}
	}
	return len(governs) > 0
}

// private returns the private prefixes that the blocks allow. Those of a lower layer count only
// where they are within the organisation's.
func (p *Policy) private(q *lookup) []netip.Prefix {
	var open []netip.Prefix
	found := false
	for _, t := range p.grants {
		blocks, _ := t.find(q.host, q.addr)
		if b := on(blocks, q.port); b != nil {
			open, found = append(open, b.private...), true
		}
	}
	for i, t := range p.ceilings {
		blocks, _ := t.find(q.host, q.addr)
		var upper []netip.Prefix
		if b := on(blocks, q.port); b != nil {
			upper = b.private
		}
		if i == 0 && !found {
			open = upper
			continue
		}
		open = inside(open, upper)
	}
	return open
}

func inside(lower, upper []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, l := range lower {
		for _, u := range upper {
			switch {
			case !u.Overlaps(l):
			case u.Bits() <= l.Bits():
				out = append(out, l)
			default:
				out = append(out, u)
			}
		}
	}
	return out
}

// Approval returns the votes and the timeout of approval requests for a host.
func (p *Policy) Approval(host string, port int) (quorum int, timeout time.Duration) {
	quorum, timeout = p.merged.Approvals.Quorum, time.Duration(p.merged.Approvals.Timeout)
	a, _ := address(host)
	for _, tables := range [][]*table{p.ceilings, p.grants} {
		for _, t := range tables {
			blocks, _ := t.find(host, a)
			if b := on(blocks, port); b != nil {
				quorum = max(quorum, b.quorum)
				if b.timeout > 0 {
					timeout = min(timeout, b.timeout)
				}
			}
		}
	}
	return quorum, timeout
}
