package lifecycle

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

// leastWait is long enough to use a decision that is already there: a grant stays for
// the next try if no caller waits for it.
const leastWait = 200 * time.Millisecond

// AskAccess requests approval for a sandbox to reach a host for as long as it lives,
// and adds the host once approved. A host that is allowed already is granted at once.
// A host that no approval could allow is Denied. A repeated request is the same
// request, whatever its reason: a program must not wear approvers down by rewording
// it.
func (s *Service) AskAccess(ctx context.Context, who sandbox.Principal, ref string, w sandbox.Wanted) (egress.Answer, error) {
	r, err := s.resolve(ctx, who, ref)
	if err != nil {
		return egress.Answer{}, err
	}
	if r.State != sandbox.Running {
		return egress.Answer{}, sandbox.NotRunning(r)
	}
	if !r.Access.Linked() {
		return egress.Answer{}, fault.Newf(fault.Conflict, "network_fixed", "Sandbox \"%s\" was made without a network", r.ID).
			WithHint("only a new sandbox can have one")
	}
	q, granted, err := s.wantedQuestion(r, who, w)
	if err != nil || granted {
		return egress.Answer{Granted: granted, State: string(approval.Approved), Reason: "it is allowed already"}, err
	}
	if s.questions == nil {
		return egress.Answer{}, fault.New(fault.Denied, "nobody_to_ask", "this server asks no one")
	}
	wait, cancel := context.WithTimeout(ctx, max(w.Wait, leastWait))
	defer cancel()
	answer, err := s.questions.Ask(wait, q)
	if err != nil || !answer.Granted {
		return answer, err
	}
	// The grant is spent: what it is for must not depend on who waits.
	if err := s.Amend(context.WithoutCancel(ctx), r.ID, net.JoinHostPort(w.Host, strconv.Itoa(w.Port))); err != nil {
		return egress.Answer{}, err
	}
	return answer, nil
}

// wantedQuestion is what people are asked, or says that it is allowed already.
func (s *Service) wantedQuestion(r sandbox.Row, who sandbox.Principal, w sandbox.Wanted) (egress.Question, bool, error) {
	endpoint := net.JoinHostPort(w.Host, strconv.Itoa(w.Port))
	if !approval.Plain(w.Host) || w.Port < 1 || w.Port > 65535 {
		return egress.Question{}, false, fault.Newf(fault.Invalid, "invalid_host", "%q is not one exact host and a port", text.Strict(endpoint, 300)).
			WithHint("such as api.example.com, in lower case and without wildcards")
	}
	before, err := s.compile(r.Access)
	if err != nil {
		return egress.Question{}, false, err
	}
	next := r.Access
	if !slices.Contains(next.Allow, endpoint) {
		next.Allow = append(slices.Clone(next.Allow), endpoint)
	}
	after, err := s.compile(next.Settled())
	if err != nil {
		return egress.Question{}, false, err
	}
	if verdict(before, w).Effect == egress.Allow {
		return egress.Question{}, true, nil
	}
	if d := verdict(after, w); d.Effect != egress.Allow {
		return egress.Question{}, false, fault.Newf(fault.Denied, "not_grantable", "no answer could allow %s: %s", endpoint, d.Reason).
			WithHint("rule " + d.Rule + " of the " + d.Layer + " stands above what can be asked for")
	}
	quorum, expiry := before.Approval(w.Host, w.Port)
	asker := "local"
	if !who.Local {
		asker = approval.AskerKey(who.KeyID)
		if s.settings.AgentsAnswer {
			asker = "an agent's key, which may answer"
		}
	}
	summary := "let the sandbox reach " + endpoint + " from now on"
	if w.Reason != "" {
		// Not among the facts: the grant is for the host, whatever was said.
		summary += ". The agent says (unchecked): " + text.Strict(w.Reason, 400)
	}
	return egress.Question{
		Sandbox: r.ID, Kind: egress.AskWiden, Summary: summary, Rule: "access.request",
		Facts: map[string]string{
			approval.FactHost: w.Host, approval.FactPort: strconv.Itoa(w.Port), "to": after.Digest(), approval.FactAsker: asker,
		},
		Policy: before.Digest(), Quorum: quorum, Expiry: int64(expiry / time.Second),
	}, false, nil
}

// verdict is what a policy says of a first request to a host.
func verdict(p *policy.Policy, w sandbox.Wanted) egress.Decision {
	c := p.Connect(w.Host, w.Port)
	if c.Effect != egress.Allow || !c.Inspect {
		return c.Decision
	}
	d, _ := p.Request(policy.Request{Host: w.Host, Port: w.Port, Method: http.MethodGet, Path: "/", TLS: w.Port != 80})
	return d
}
