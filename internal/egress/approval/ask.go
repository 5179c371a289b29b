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

// Ask puts a question and waits for its answer as long as ctx allows. The
// grant is spent by the answer: of any number of callers with the same
// question exactly one gets it, and the others ask anew. What is still open
// when ctx ends is pending; the same question asked later finds it, also in
// another process and after a restart.
func (s *Service) Ask(ctx context.Context, q egress.Question) (egress.Answer, error) {
	if err := check(q); err != nil {
		return egress.Answer{}, err
	}
	owner, ok := s.o.Lookup(q.Sandbox)
	if !ok {
		return egress.Answer{}, fault.Newf(fault.NotFound, "sandbox_not_found", "there is no sandbox %q", text.Strict(q.Sandbox, maxName))
	}
	turn, done := s.pulse.join()
	defer done()
	// What is stored must be stored although the one that asks goes away at
	// once: a program that hangs up and tries again must find its question.
	keep := context.WithoutCancel(ctx)
	for {
		fresh := question(q, owner)
		a, err := s.o.Store.RaiseApproval(keep, fresh, s.o.Bounds)
		if err != nil {
			return egress.Answer{}, fmt.Errorf("ask about sandbox %s: %w", q.Sandbox, err)
		}
		if a.ID == fresh.ID {
			if err := s.o.Record(keep, StepAsked, a, nil); err != nil {
				return egress.Answer{}, fmt.Errorf("ask about sandbox %s: %w", q.Sandbox, err)
			}
			s.o.Log.Info("approval asked for", "sandbox", a.Sandbox, "approval", a.ID, "kind", a.Kind)
			s.pulse.wake()
		}
		answer, over, err := s.follow(ctx, turn, a)
		if err != nil || over {
			return answer, err
		}
	}
}

// follow waits for what comes of an approval. It is not over if another
// caller spent the grant.
func (s *Service) follow(ctx context.Context, turn *turn, a Approval) (answer egress.Answer, over bool, err error) {
	keep := context.WithoutCancel(ctx)
	for {
		// A grant whose caller has left stays for the next try.
		if ctx.Err() != nil && a.State.Open() {
			return reply(a, Pending), true, nil
		}
		switch a.State {
		case Denied, Expired:
			return reply(a, a.State), true, nil
		case Spent:
			return egress.Answer{}, false, nil
		case Approved:
			spent, err := s.o.Store.SpendApproval(keep, a.ID, a.Digest, now())
			if err != nil {
				return egress.Answer{}, true, fmt.Errorf("spend approval %s: %w", a.ID, err)
			}
			if spent {
				// It is used up, whether or not the record takes it: then the
				// action does not happen, and is asked about again.
				if err := s.o.Record(keep, StepSpent, a, nil); err != nil {
					return egress.Answer{}, true, fmt.Errorf("spend approval %s: %w", a.ID, err)
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
			return egress.Answer{}, true, fmt.Errorf("read approval: %w", err)
		}
		if a.State.Open() && !now().Before(a.Expires) {
			a.State = Expired // the sweep is at most a second behind
		}
	}
}

func reply(a Approval, state State) egress.Answer {
	return egress.Answer{Approval: a.ID, State: string(state), Reason: a.Reason}
}

func question(q egress.Question, owner string) Approval {
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
