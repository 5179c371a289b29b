package proxy

import (
	"github.com/crannog/crannog/internal/causeway"
	"github.com/crannog/crannog/internal/causeway/publish"
)

// publication asks the policy about a request that publishes.
func (x *exchange) publication(d causeway.Decision) causeway.Decision {
	if d.Effect == causeway.Deny {
		return d
	}
	for _, r := range x.readings {
		p, ok := publish.Detect(r.method, x.host, r.path, x.r.Header)
		if !ok {
			continue
		}
		x.record.Kind, x.kind = causeway.KindPublish, causeway.AskPublish
		x.says(p.Summary(), p.Facts())
		if own := x.gen.policy.Publish(x.host); stricter(own.Effect, d.Effect) {
			return own
		}
		return d
	}
	return d
}
