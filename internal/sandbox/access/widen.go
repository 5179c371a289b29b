package access

import (
	"context"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// widenWait is how long a change waits for its approval.
const widenWait = 20 * time.Second

// CarefulLevel is the level under which widening the policy of a running sandbox requires an
// approval.
const CarefulLevel = "strict"

// MayWiden requests approval of a change that makes a strict sandbox's policy wider. The approval
// is bound to the resulting policy, so that no other change can use it.
func (s *Service) MayWiden(ctx context.Context, r sandbox.Row, change func(sandbox.Access) (sandbox.Access, error)) error {
	if r.PolicyLevel != CarefulLevel {
		return nil
	}
	before, err := s.Compile(r.Access)
	if err != nil {
		return err
	}
	next, err := change(r.Access)
	if err != nil {
		return err
	}
	after, err := s.Compile(next)
	if err != nil {
		return err
	}
	wider := policy.Widen(before, after)
	if len(wider) == 0 {
		return nil
	}
	if s.deps.Approvals == nil {
		return fault.New(fault.Denied, "policy_widening_denied", "making a strict sandbox's policy wider requires an approval, but this server has no approvers")
	}
	quorum, expiry := before.Document().Approvals.Quorum, time.Duration(before.Document().Approvals.Timeout)
	waitCtx, cancel := context.WithTimeout(ctx, widenWait)
	defer cancel()
	outcome, err := s.deps.Approvals.Ask(waitCtx, egress.ApprovalRequest{
		Sandbox: r.ID, Kind: egress.AskWiden, Summary: "let the sandbox's policy be wider: " + strings.Join(wider, "; "),
		Facts: map[string]string{"wider": strings.Join(wider, "\n"), "to": after.Digest()},
		Rule:  "policy.widen", Policy: before.Digest(), Quorum: quorum, Expiry: int64(expiry / time.Second),
	})
	if err != nil {
		return err
	}
	if outcome.Granted {
		return nil
	}
	e := fault.Newf(fault.Denied, "policy_widening_"+outcome.State, "making a strict sandbox's policy wider needs an approval, which is %s", outcome.State)
	if outcome.Approval != "" {
		e = e.WithHint(approval.HowToGrant(outcome.Approval, r.Owner, quorum) + "; then request the same change again")
	}
	return e
}
