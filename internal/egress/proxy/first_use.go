package proxy

import (
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/egress"
)

// permission identifies an approval of a first use: a value at a destination. Another value of the
// same name needs its own approval.
type permission struct {
	name       string
	generation int64
	location   location
}

func (b *Handler) permitted(p permission) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.uses.permits[p]
}

// each joins a binding's list, or returns all if the list is empty.
func each(list []string, all string) string {
	if len(list) == 0 {
		return all
	}
	return strings.Join(list, ", ")
}

// permit requests approval of the first use of each secret that requires it. A grant is valid for
// this sandbox until the value changes.
func (x *exchange) permit() *refusal {
	for _, s := range x.secrets {
		p := permission{s.Name, s.Generation, s.location}
		if !s.ApproveFirst || s.Approve || x.handler.permitted(p) {
			continue
		}
		d := egress.Decision{Effect: egress.Ask, Rule: "secret:" + s.Name, Layer: "task", Policy: x.gen.policy.Digest(), Fix: "crannog approve"}
		id, stop := x.handler.requestApproval(x.ctx, x.gen, d, x.dest.host, x.dest.port, egress.ApprovalRequest{
			Kind:    egress.AskSecret,
			Summary: "use the secret " + s.Name + " on " + x.dest.host + " for the first time",
			Facts: map[string]string{
				"secret": s.Name, "generation": strconv.FormatInt(s.Generation, 10), "host": x.dest.host, "port": strconv.Itoa(x.dest.port),
				"method": each(s.Methods, anything), "target": x.origin() + each(s.Paths, "/**"), "body": "everything that is sent with the secret there",
			},
		})
		if stop != nil {
			return stop
		}
		x.record.Approval = id
		x.handler.mu.Lock()
		x.handler.uses.permits[p] = true
		x.handler.mu.Unlock()
	}
	return nil
}
