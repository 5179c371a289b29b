package lifecycle

import (
	"context"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// minWait is the minimum time to wait for a decision. It is long enough to get one that exists
// already.
const minWait = 200 * time.Millisecond

// AskAccess requests approval for a sandbox to reach a host until the sandbox ends, and adds the
// host once approved. A host that is already allowed is granted at once. A host that no approval
// could allow is Denied. A repeated request is the same request, whatever its reason: a program
// must not wear approvers down by rewording it.
func (s *Service) AskAccess(ctx context.Context, caller sandbox.Principal, ref string, w sandbox.HostRequest) (egress.ApprovalOutcome, error) {
	r, err := s.resolve(ctx, caller, ref)
	if err != nil {
		return egress.ApprovalOutcome{}, err
	}
	if r.State != sandbox.Running {
		return egress.ApprovalOutcome{}, sandbox.NotRunning(r)
	}
	if !r.Access.Linked() {
		return egress.ApprovalOutcome{}, fault.Newf(fault.Conflict, "network_fixed", "Sandbox \"%s\" was created without a network", r.ID).
			WithHint("create a new sandbox with a network")
	}
	q, granted, err := s.access.ApprovalRequest(r, caller, w)
	if err != nil || granted {
		return egress.ApprovalOutcome{Granted: granted, State: string(approval.Approved), Reason: "it is allowed already"}, err
	}
	waitCtx, cancel := context.WithTimeout(ctx, max(w.Wait, minWait))
	defer cancel()
	outcome, err := s.access.Ask(waitCtx, q)
	if err != nil || !outcome.Granted {
		return outcome, err
	}
	// Using up the grant and adding the host must not stop because the caller went away.
	if err := s.Amend(context.WithoutCancel(ctx), r.ID, net.JoinHostPort(w.Host, strconv.Itoa(w.Port))); err != nil {
		return egress.ApprovalOutcome{}, err
	}
	return outcome, nil
}

// Amend adds an approved host to the access of a sandbox.
func (s *Service) Amend(ctx context.Context, id, endpoint string) error {
	_, err := s.setAccess(ctx, sandbox.Principal{Local: true}, id, func(a sandbox.Access) (sandbox.Access, error) {
		if !slices.Contains(a.Allow, endpoint) {
			a.Allow = append(slices.Clone(a.Allow), endpoint)
		}
		return a, nil
	})
	return err
}
