package policy

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/names"
	"github.com/crannog/crannog/internal/fault"
)

// ParseTarget parses the target of crannog policy explain: a method and a URL, or CONNECT and a
// host with a port, which is a connection that is not inspected.
func ParseTarget(method, target string) (Request, error) {
	method = strings.ToUpper(method)
	if method != "CONNECT" {
		if !strings.Contains(target, "://") {
			target = "https://" + target
		}
		r, err := ParseRequest(method + " " + target)
		if err != nil {
			return r, fault.New(fault.Invalid, "request_invalid", fault.PublicText(err))
		}
		r.Host = canonicalHost(r.Host)
		return r, nil
	}
	host, number, err := net.SplitHostPort(target)
	if err != nil {
		host, number = strings.Trim(target, "[]"), "443"
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil || port == 0 || host == "" {
		return Request{}, fault.Newf(fault.Invalid, "request_invalid", "%q is not a host and a port, such as example.com:443", clip(target))
	}
	return Request{Host: canonicalHost(host), Port: int(port)}, nil
}

// canonicalHost returns the canonical form of a host. An invalid host is returned unchanged, and
// will be denied.
func canonicalHost(host string) string {
	if name, err := names.Canonical(host); err == nil {
		return name
	}
	return host
}

// Foresee is like Explain, but includes the floor's decision about addresses, which is otherwise
// made only when a connection is opened.
func (p *Policy) Foresee(r Request) (egress.Decision, []Step) {
	d, steps := p.Explain(r)
	a, err := netip.ParseAddr(r.Host)
	if err != nil || d.Effect == egress.Deny {
		return d, steps
	}
	if err := names.CheckAddress(a, p.Connect(r.Host, r.Port).Private, nil); err != nil {
		d = egress.Decision{
			Effect: egress.Deny, Rule: RuleAddress, Layer: LayerFloor, Policy: d.Policy, Reason: fault.PublicText(err), Fix: fault.HintOf(err),
		}
		if fault.CodeOf(err) == "address_private" {
			d.Rule = RulePrivate
		}
		// Replace the last step, whose rule is no longer the deciding one.
		steps = append(steps[:len(steps)-1:len(steps)-1], Step{Layer: d.Layer, Rule: d.Rule, Effect: d.Effect, Text: "no connection goes there"})
	}
	return d, steps
}
