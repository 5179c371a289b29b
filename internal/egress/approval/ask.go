package approval

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/text"
	"github.com/crannog/crannog/internal/ids"
)

// Ask raises an approval request and waits for its decision until ctx ends. The answer uses up the
// grant: of several callers with the same request exactly one gets it, and the others make a new
// request. If ctx ends first, the state is pending. Repeating the request later finds the same one,
// also from another process and after a restart.
func (s *Service) Ask(ctx context.Context, q egress.ApprovalRequest) (egress.ApprovalOutcome, error) {
	if err := check(q); err != nil {
		return egress.ApprovalOutcome{}, err
	}
	owner, ok := s.o.Lookup(q.Sandbox)
	if !ok {
		return egress.ApprovalOutcome{}, fault.Newf(fault.NotFound, "sandbox_not_found", "there is no sandbox %q", text.Strict(q.Sandbox, maxName))
	}
	turn, done := s.pulse.join()
	defer done()
	// Store the request even if the caller disconnects at once: a program that retries must find
	// its request.
	keep := context.WithoutCancel(ctx)
	for {
		fresh := newApproval(q, owner)
		a, err := s.o.Store.RaiseApproval(keep, fresh, s.o.Bounds)
		if err != nil {
			return egress.ApprovalOutcome{}, fmt.Errorf("ask about sandbox %s: %w", q.Sandbox, err)
		}
		if a.ID == fresh.ID {
			if err := s.o.Record(keep, StepAsked, a, nil); err != nil {
				return egress.ApprovalOutcome{}, fmt.Errorf("ask about sandbox %s: %w", q.Sandbox, err)
			}
			s.o.Log.Info("approval requested", "sandbox", a.Sandbox, "approval", a.ID, "kind", a.Kind)
			s.pulse.wake()
		}
		answer, over, err := s.follow(ctx, turn, a)
		if err != nil || over {
			return answer, err
		}
	}
}

// follow waits for the outcome of a request. over is false if another caller used the grant, and
// the caller must make a new request.
func (s *Service) follow(ctx context.Context, turn *turn, a Approval) (answer egress.ApprovalOutcome, over bool, err error) {
	keep := context.WithoutCancel(ctx)
	for {
		// If the caller has disconnected, the grant remains for its next try.
		if ctx.Err() != nil && a.State.Open() {
			return reply(a, Pending), true, nil
		}
		switch a.State {
		case Denied, Expired:
			return reply(a, a.State), true, nil
		case Spent:
			return egress.ApprovalOutcome{}, false, nil
		case Approved:
			spent, err := s.o.Store.SpendApproval(keep, a.ID, a.Digest, now())
			if err != nil {
				return egress.ApprovalOutcome{}, true, fmt.Errorf("spend approval %s: %w", a.ID, err)
			}
			if spent {
				// The grant is used up even if the audit log rejects the entry. The action then
				// does not happen, and requires a new approval.
				if err := s.o.Record(keep, StepSpent, a, nil); err != nil {
					return egress.ApprovalOutcome{}, true, fmt.Errorf("spend approval %s: %w", a.ID, err)
				}
				s.o.Log.Info("approval spent", "sandbox", a.Sandbox, "approval", a.ID)
				s.pulse.wake()
				answer = reply(a, Approved)
				answer.Granted = true
				return answer, true, nil
			}
		case Pending:
			if !turn.wait(ctx) {
				return reply(a, Pending), true, nil
			}
		}
		if a, err = s.o.Store.Approval(keep, a.ID); err != nil {
			return egress.ApprovalOutcome{}, true, fmt.Errorf("read approval: %w", err)
		}
		if a.State.Open() && !now().Before(a.Expires) {
			a.State = Expired // the sweep is at most a second late
		}
	}
}

func reply(a Approval, state State) egress.ApprovalOutcome {
	return egress.ApprovalOutcome{Approval: a.ID, State: string(state), Reason: a.Reason}
}

func newApproval(q egress.ApprovalRequest, owner string) Approval {
	at := now()
	expiry := time.Duration(q.Expiry) * time.Second
	if expiry == 0 {
		expiry = defaultExpiry
	}
	return Approval{
		ID: ids.New("a"), Sandbox: q.Sandbox, Owner: owner, Kind: q.Kind, Summary: text.Strict(q.Summary, maxText),
		Facts: maps.Clone(q.Facts), Rule: q.Rule, Policy: q.Policy, Digest: Digest(q), Quorum: max(q.Quorum, 1),
		State: Pending, Created: at, Expires: at.Add(expiry),
	}
}
