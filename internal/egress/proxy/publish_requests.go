package proxy

import (
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/publish"
)

// publication applies the policy's decision about publications to a request that publishes.
func (x *exchange) publication(d egress.Decision) egress.Decision {
	if d.Effect == egress.Deny {
		return d
	}
	for _, r := range x.action.readings {
		p, ok := publish.Detect(r.method, x.dest.host, r.path, x.r.Header)
		if !ok {
			continue
		}
		x.record.Kind, x.question.kind = egress.KindPublish, egress.AskPublish
		x.addFacts(p.Summary(), p.Facts())
		if publishDecision := x.gen.policy.Publish(x.dest.host); publishDecision.Effect.Stricter(d.Effect) {
			return publishDecision
		}
		return d
	}
	return d
}
