package proxy

import (
	"strings"

	"github.com/crannog/crannog/internal/causeway"
	"github.com/crannog/crannog/internal/causeway/publish"
)

// override are the headers by which many servers take another method for the
// request's own.
var override = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// overrides are the methods that a server may go by instead.
func (x *exchange) overrides() []string {
	var methods []string
	for _, name := range override {
		for _, m := range x.r.Header[name] {
			methods = append(methods, strings.ToUpper(strings.TrimSpace(m)))
		}
	}
	return methods
}

// publication asks the policy about a request that publishes.
func (x *exchange) publication(d causeway.Decision) causeway.Decision {
	if d.Effect == causeway.Deny {
		return d
	}
	for _, method := range append([]string{x.method}, x.overrides()...) {
		p, ok := publish.Detect(method, x.host, x.path, x.r.Header)
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
