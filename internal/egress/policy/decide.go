package policy

import "github.com/crannog/crannog/internal/egress"

// verdict is a decision under construction.
type verdict struct {
	effect     egress.Effect
	rule       string
	layer      string
	why        why
	block      *block // what decides, if anything
	explicit   bool   // a rule that says deny
	fixable    bool   // listing the host would help
	limits     Limits
	applicable []*block // all blocks that apply
	needs      bool     // a block cannot decide without the request
}

func (q *lookup) note(layer, rule string, e egress.Effect, text string) {
	if q.steps != nil {
		*q.steps = append(*q.steps, Step{Layer: layer, Rule: rule, Effect: e, Text: text})
	}
}

// evaluate evaluates every layer and returns the strictest verdict.
func (p *Policy) evaluate(q *lookup) verdict {
	var buf [4]*block
	governs := buf[:0]
	var upper verdict // of the organisation, if it has one
	hasUpper, needs := false, false
	for _, t := range p.ceilings {
		v, found := t.ask(q)
		needs = needs || v.needs
		if !found {
			v = unlisted(q, p.top.unlisted)
		} else {
			governs = append(governs, v.block)
		}
		if v.explicit {
			return v
		}
		if !hasUpper || v.effect.Stricter(upper.effect) {
			v.limits = tighter(upper.limits, v.limits)
			upper = v
		} else {
			upper.limits = tighter(upper.limits, v.limits)
		}
		hasUpper = true
	}
	lower, found := p.grant(q)
	if lower.explicit {
		return lower
	}
	governs = append(governs, lower.applicable...)
	needs = needs || lower.needs
	if !found && !p.granting && upper.block != nil {
		upper.applicable, upper.needs = governs, needs
		return upper
	}
	v := lower
	if !found {
		v = unlisted(q, p.settings.unlisted)
	}
	v.fixable = (!found || v.why == otherPort) && (!hasUpper || upper.effect == egress.Allow)
	if hasUpper {
		limits := tighter(upper.limits, v.limits)
		if upper.effect.Stricter(v.effect) {
			q.note(upper.layer, upper.rule, upper.effect, "is the ceiling")
			v = upper
		}
		v.limits = limits
	}
	v.applicable, v.needs = governs, needs
	return v
}

// ask returns one layer's verdict, if one of its blocks applies.
func (t *table) ask(q *lookup) (verdict, bool) {
	blocks, _ := t.find(q.host, q.addr)
	if blocks == nil {
		q.note(t.layer, "", "", "lists nothing for "+q.host)
		return verdict{}, false
	}
	b := on(blocks, q.port)
	if b == nil {
		q.note(t.layer, blocks[0].name, egress.Deny, "does not list the port")
		return verdict{effect: egress.Deny, rule: blocks[0].name, layer: t.layer, why: otherPort, block: blocks[0]}, true
	}
	v := b.verdict(q)
	v.needs = b.needs
	q.note(t.layer, v.rule, v.effect, v.why.step())
	return v, true
}

// grant returns the verdict of the layers that list hosts side by side. The most specific block
// decides. Blocks with the same pattern count as one. A rule that denies counts in any layer.
func (p *Policy) grant(q *lookup) (verdict, bool) {
	var best verdict
	found, listed, needs, specific := false, false, false, 0
	for _, t := range p.grants {
		blocks, s := t.find(q.host, q.addr)
		if blocks == nil {
			continue
		}
		v, _ := t.ask(q)
		if v.explicit {
			return v, true
		}
		needs = needs || v.needs
		listsPort := v.why != otherPort
		switch {
		case !found, listsPort && !listed, listsPort == listed && s > specific:
			best, found, listed, specific = v, true, listsPort, s
			best.applicable = []*block{v.block}
		case listsPort == listed && s == specific:
			best = unite(best, v)
		}
	}
	best.needs = needs
	return best, found
}

// unite combines the verdicts of two blocks with one pattern: deny over ask over allow. If one
// block has no matching rule, the other decides.
func unite(a, b verdict) verdict {
	governs := append(a.applicable, b.block)
	out := a
	if a.why == unmatched || b.why == ruled && b.effect.Stricter(a.effect) {
		out = b
	}
	if a.why == ruled && b.why == ruled {
		out.limits = tighter(a.limits, b.limits)
	}
	out.applicable = governs
	return out
}

// unlisted returns the verdict about a host without a block.
func unlisted(q *lookup, s setting) verdict {
	v := verdict{rule: RuleUnlisted, layer: s.layer, why: notListed}
	switch s.value {
	case "allow":
		v.effect = egress.Allow
	case "read":
		v.effect = egress.Ask
		if q.mode != opaque && (q.mode == reaches || q.read() && !q.upgrade) && (q.port == 80 || q.port == 443) {
			v.effect = egress.Allow
		}
	case "ask":
		v.effect = egress.Ask
	default:
		v.effect = egress.Deny
	}
	// A person cannot judge a bare address, and a rule about names cannot apply to it.
	if q.addr.IsValid() && s.value != "allow" {
		v.effect, v.rule = egress.Deny, RuleAddresses
	}
	q.note(s.layer, v.rule, v.effect, "the host is in no block")
	return v
}
