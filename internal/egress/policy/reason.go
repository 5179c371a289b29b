package policy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/names"
)

// why is the reason of a verdict.
type why int

const (
	unmatched why = iota // the block has no rule for it
	ruled                // a rule allows or asks
	denied               // a rule denies
	otherPort            // the block has other ports
	notListed            // no block lists the host
	bySetting            // a stricter setting
)

// step returns the text of a step of Explain.
func (w why) step() string {
	switch w {
	case ruled, denied:
		return "this rule matches"
	case otherPort:
		return "the block does not list the port"
	case unmatched, notListed, bySetting:
	}
	return "no rule of the block matches"
}

// floor returns a built-in decision, which no document can change.
func (p *Policy) floor(rule string) egress.Decision {
	d := egress.Decision{Effect: egress.Deny, Rule: rule, Layer: LayerFloor, Policy: p.digest}
	switch rule {
	case RuleName:
		d.Reason = "This is not a host name or port that can be checked."
	case RulePath:
		d.Reason = "Servers read this path in more than one way."
		d.Fix = "send the path without escapes of . / % and without empty, . or .. segments"
	case RuleMethod:
		d.Reason = "This method cannot be checked."
	case RulePlain:
		d.Reason = "Port 443 is for TLS."
		d.Fix = "use https://"
	}
	return d
}

// decision converts a verdict to a Decision, with its reason and a change that would allow the
// request. An allowed request, the most frequent case, needs neither.
func (p *Policy) decision(q *lookup, v verdict) egress.Decision {
	d := egress.Decision{Effect: v.effect, Rule: v.rule, Layer: v.layer, Policy: p.digest}
	if v.effect == egress.Allow {
		return d
	}
	d.Reason = v.reason(q)
	if q.addr.IsValid() && names.CheckAddress(q.addr, everywhere, nil) != nil {
		// Do not suggest a fix that would not help.
		return egress.Decision{
			Effect: egress.Deny, Rule: RuleAddress, Layer: LayerFloor, Policy: p.digest,
			Reason: "This address can never be reached: it is the machine's own, a metadata service's or a reserved one.",
		}
	}
	switch {
	case v.effect == egress.Ask:
		d.Fix = "crannog approve"
	case v.explicit:
	case v.rule == RuleTunnels || v.rule == RuleWebSocket || v.rule == RuleWrites:
		if v.layer == LayerLevel {
			d.Fix = "--level " + p.loosened(v.rule)
		}
	case v.fixable:
		d.Fix = "--allow " + flag(q)
	case v.why == unmatched && v.layer != LayerOrganisation && v.block != nil:
		d.Fix = "policy: rule for " + strings.TrimPrefix(v.block.name, "host:") + ": {" + entry(q) + "do: allow}"
	}
	return d
}

// everywhere allows all private ranges. Addresses that are denied in spite of it are in the floor.
var everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// flag returns the host in the form for --allow.
func flag(q *lookup) string {
	if q.port == 443 {
		return q.host
	}
	return q.host + ":" + strconv.Itoa(q.port)
}

// entry returns the part of a rule that would match. It quotes a path, which the sandbox controls,
// and omits a long one.
func entry(q *lookup) string {
	if q.mode != judge || q.method == "" {
		return ""
	}
	e := "methods: [" + clip(q.method) + "], "
	if len(q.path.exact) <= 200 && !strings.Contains(q.path.exact, "*") {
		e += "paths: [" + strconv.QuoteToASCII(q.path.exact) + "], "
	}
	return e
}

// reason returns the explanation of a decision.
func (v verdict) reason(q *lookup) string {
	at := q.host + ":" + strconv.Itoa(q.port)
	verb := " denies "
	if v.effect == egress.Ask {
		verb = " asks about "
	}
	switch v.why {
	case ruled, denied:
		return "A rule of the " + v.layer + " layer" + verb + "this."
	case otherPort:
		return "The block for " + q.host + " in the " + v.layer + " layer does not list port " + strconv.Itoa(q.port) + "."
	case notListed:
		if v.rule == RuleAddresses {
			return "No name was looked up for " + at + ", and no block lists the address."
		}
		return "There is no block for " + at + ", and " + v.rule + " of the " + v.layer + " layer" + verb + "those."
	case bySetting:
		return v.rule + " of the " + v.layer + " layer" + verb + "this."
	case unmatched:
	}
	return "The block for " + q.host + " in the " + v.layer + " layer has no rule for this."
}

// loosened returns the strictest level below the current one whose setting does not deny, or the
// next lower level if all deny.
func (p *Policy) loosened(rule string) string {
	at := slices.Index(levels, p.level)
	for i := at - 1; i >= 0; i-- {
		d, err := Level(levels[i])
		if err != nil {
			break
		}
		var s settings
		s.merge(Layer{Kind: LayerLevel, Document: d}, func(string, string) {})
		of := map[string]setting{
			RuleWrites: s.writes, RuleTunnels: s.tunnels, RuleWebSocket: s.webSocket, RulePublish: s.publish, RuleFetch: s.fetch,
			RulePush + ".unlisted": s.pushNew, RulePush + ".delete": s.pushDelete, RulePush + ".force": s.pushForce,
		}
		if of[rule].value != "deny" {
			return levels[i]
		}
	}
	return levels[max(at-1, 0)]
}
