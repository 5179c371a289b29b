package access

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/text"
	"github.com/crannog/crannog/internal/sandbox"
)

// ApprovalRequest returns the approval request for a host, or reports that the policy already
// allows the host.
func (s *Service) ApprovalRequest(r sandbox.Row, caller sandbox.Principal, w sandbox.HostRequest) (egress.ApprovalRequest, bool, error) {
	endpoint := net.JoinHostPort(w.Host, strconv.Itoa(w.Port))
	if !approval.Plain(w.Host) || w.Port < 1 || w.Port > 65535 {
		return egress.ApprovalRequest{}, false, fault.Newf(fault.Invalid, "invalid_host", "%q is not one exact host and a port", text.Strict(endpoint, 300)).
			WithHint("such as api.example.com, in lower case and without wildcards")
	}
	before, err := s.Compile(r.Access)
	if err != nil {
		return egress.ApprovalRequest{}, false, err
	}
	next := r.Access
	if !slices.Contains(next.Allow, endpoint) {
		next.Allow = append(slices.Clone(next.Allow), endpoint)
	}
	after, err := s.Compile(next.Resolved())
	if err != nil {
		return egress.ApprovalRequest{}, false, err
	}
	if firstDecision(before, w).Effect == egress.Allow {
		return egress.ApprovalRequest{}, true, nil
	}
	if d := firstDecision(after, w); d.Effect != egress.Allow {
		return egress.ApprovalRequest{}, false, fault.Newf(fault.Denied, "not_grantable", "no approval could allow %s: %s", endpoint, d.Reason).
			WithHint("rule " + d.Rule + " of the " + d.Layer + " has precedence over every approval")
	}
	quorum, expiry := before.Approval(w.Host, w.Port)
	requester := "local"
	if !caller.Local {
		requester = approval.RequesterKey(caller.KeyID)
		if s.deps.Settings.AgentsAnswer {
			requester = "an agent's key, which may decide requests"
		}
	}
	summary := "let the sandbox reach " + endpoint + " from now on"
	if w.Reason != "" {
		// The reason is not among the facts, because the grant is for the host and does not depend
		// on the stated reason.
		summary += ". The agent says (unchecked): " + text.Strict(w.Reason, 400)
	}
	return egress.ApprovalRequest{
		Sandbox: r.ID, Kind: egress.AskWiden, Summary: summary, Rule: "access.request",
		Facts: map[string]string{
			approval.FactHost: w.Host, approval.FactPort: strconv.Itoa(w.Port), "to": after.Digest(), approval.FactRequester: requester,
		},
		Policy: before.Digest(), Quorum: quorum, Expiry: int64(expiry / time.Second),
	}, false, nil
}

// Ask requests an approval, and waits as long as the context allows.
func (s *Service) Ask(ctx context.Context, q egress.ApprovalRequest) (egress.ApprovalOutcome, error) {
	if s.deps.Approvals == nil {
		return egress.ApprovalOutcome{}, fault.New(fault.Denied, "nobody_to_ask", "this server has no approvers")
	}
	return s.deps.Approvals.Ask(ctx, q)
}

// Retire closes open approval requests whose approval would no longer have an effect. Requests
// under the policy with the digest keep stay open. A failure is harmless: an open request expires,
// and a grant for another policy cannot be used.
func (s *Service) Retire(ctx context.Context, id, keep, reason string) {
	if s.deps.Approvals == nil {
		return
	}
	if err := s.deps.Approvals.Retire(ctx, id, keep, reason); err != nil {
		s.deps.Log.Warn("open approval requests not closed", "sandbox", id, "err", err)
	}
}

// firstDecision returns the policy's decision for a first request to a host.
func firstDecision(p *policy.Policy, w sandbox.HostRequest) egress.Decision {
	c := p.Connect(w.Host, w.Port)
	if c.Effect != egress.Allow || !c.Inspect {
		return c.Decision
	}
	d, _ := p.Request(policy.Request{Host: w.Host, Port: w.Port, Method: http.MethodGet, Path: "/", TLS: w.Port != 80})
	return d
}
