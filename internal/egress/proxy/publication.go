package proxy

import (
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/publish"
)

// publication returns the policy's decision about a request that publishes.
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
		if own := x.gen.policy.Publish(x.dest.host); own.Effect.Stricter(d.Effect) {
			return own
		}
		return d
	}
	return d
}
