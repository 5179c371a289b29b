package policy

import "github.com/crannog/crannog/internal/egress"

// Step is one check on the way to a decision.
type Step struct {
	Layer  string        `json:"layer"`
	Rule   string        `json:"rule,omitempty"`
	Effect egress.Effect `json:"effect,omitempty"`
	Text   string        `json:"text"`
}

// Explain decides like Request and also returns the steps. A request without a method is a
// connection whose bytes are not inspected.
func (p *Policy) Explain(r Request) (egress.Decision, []Step) {
	var steps []Step
	q := lookup{host: r.Host, port: r.Port, method: r.Method, upgrade: r.WebSocket, steps: &steps}
	if r.Method == "" {
		c := p.Connect(r.Host, r.Port)
		if _, isAddress := address(r.Host); isAddress || validName(r.Host) {
			q.addr, _ = address(r.Host)
			q.mode = opaque
			v := p.evaluate(&q)
			if c.Tunnel {
				stricter(&q, v, p.settings.tunnels, RuleTunnels)
			}
		}
		if c.Inspect {
			steps = append(steps, Step{Layer: LayerFloor, Effect: c.Effect, Text: "the connection is decrypted, and each request is judged"})
		}
		return c.Decision, append(steps, Step{Layer: c.Layer, Rule: c.Rule, Effect: c.Effect, Text: "decides"})
	}
	v, floor := p.request(&q, r)
	d := p.floor(floor)
	if floor == "" {
		d = p.decision(&q, v)
	}
	return d, append(steps, Step{Layer: d.Layer, Rule: d.Rule, Effect: d.Effect, Text: "decides"})
}
