package proxy

import (
	"context"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
)

// requestApproval requests an approval and returns its ID if it is granted. Every other outcome,
// including an error, is a refusal.
func (b *Handler) requestApproval(ctx context.Context, g *generation, d egress.Decision, host string, port int, q egress.ApprovalRequest) (string, *refusal) {
	quorum, timeout := g.policy.Approval(host, port)
	q.Sandbox, q.Rule, q.Policy, q.Quorum = b.sandbox, d.Rule, g.policy.Digest(), quorum
	q.Expiry = int64(timeout / time.Second)
	q.Summary = g.clean(q.Summary)
	for k, v := range q.Facts {
		q.Facts[k] = g.text.String(v)
	}
	ctx, cancel := context.WithTimeout(ctx, b.limits.Hold)
	defer cancel()
	a, err := b.asker.Ask(ctx, q)
	if err != nil {
		r := floor(http.StatusServiceUnavailable, "approvals_unavailable", d.Rule, "no approver can be asked now")
		r.cause = err
		return "", r
	}
	if a.Granted {
		return a.Approval, nil
	}
	d.Effect = egress.Deny
	switch a.State {
	case "denied":
		d.Reason = "an approver denied it"
		if a.Reason != "" {
			d.Reason += ": " + printable(a.Reason, 256)
		}
	case "expired":
		d.Reason = "it was not decided in time"
	default:
		a.State = "pending"
		d.Reason = "a person must approve this"
	}
	return "", &refusal{status: http.StatusForbidden, code: "approval_" + a.State, decision: d, answer: &a}
}

// ask requests approval of a whole connection, if the policy requires that. A grant is
// valid for this connection.
func (f *flow) ask(g *generation, conn policy.Connection) *refusal {
	d, asks := g.asksHost(conn, f.dest.host, f.dest.port, f.dest.tls)
	if !asks {
		return nil
	}
	id, stop := f.handler.requestApproval(f.ctx, g, d, f.dest.host, f.dest.port, hostRequest(f.dest.host, f.dest.port))
	if stop != nil {
		return stop
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.consent.granted, f.consent.approved = d.Rule, id
	return nil
}

// asksHost reports whether to request approval of a host as a whole. That is the case if each
// request would need an approval because the host is not listed: one approval request is clearer
// than many.
func (g *generation) asksHost(conn policy.Connection, host string, port int, tls bool) (egress.Decision, bool) {
	if conn.Effect == egress.Ask {
		return conn.Decision, true
	}
	if !conn.Inspect {
		return egress.Decision{}, false
	}
	d, _ := g.policy.Request(policy.Request{Host: host, Port: port, Method: http.MethodGet, Path: "/", TLS: tls})
	return d, d.Effect == egress.Ask && d.Rule == policy.RuleUnlisted
}

func (f *flow) approval() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.consent.approved
}

func hostRequest(host string, port int) egress.ApprovalRequest {
	return egress.ApprovalRequest{
		Kind:    egress.AskHost,
		Summary: "connect to " + host + ":" + strconv.Itoa(port),
		Facts: map[string]string{
			"host": host, "port": strconv.Itoa(port), "method": anything, "target": net.JoinHostPort(host, strconv.Itoa(port)),
			"body": "everything that is sent on one connection",
		},
	}
}

// approve requests approval of a request. The policy may have changed when it returns.
func (x *exchange) approve() *refusal {
	var needApproval []string
	for _, s := range x.secrets {
		if s.Approve {
			needApproval = append(needApproval, s.Name)
		}
	}
	if x.decision.Effect != egress.Ask && len(needApproval) == 0 {
		return nil
	}
	q := egress.ApprovalRequest{Kind: x.question.kind, Summary: x.question.summary}
	d := x.decision
	var stop *refusal
	if d.Effect != egress.Ask {
		q.Kind = egress.AskSecret
		d.Rule, d.Layer = "secret:"+needApproval[0], "task"
	}
	if q.Summary == "" {
		q.Summary = x.action.method + " " + x.target()
	}
	if len(needApproval) > 0 {
		q.Summary += " with the secret " + strings.Join(needApproval, ", ")
	}
	if q.Facts, stop = x.facts(); stop != nil {
		return stop
	}
	maps.Copy(q.Facts, x.question.extra)
	id, stop := x.handler.requestApproval(x.ctx, x.gen, d, x.dest.host, x.dest.port, q)
	if stop != nil {
		return stop
	}
	x.record.Approval = id
	x.flow.mu.Lock()
	defer x.flow.mu.Unlock()
	x.progress.granted = d.Rule
	return nil
}
