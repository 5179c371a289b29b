package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
)

const (
	// maxOpenApprovals is the maximum number of open approval requests of one sandbox, so that it
	// cannot flood people or the server.
	maxOpenApprovals = 32
	// answerTime is subtracted from the wait, for the transfer of the answer.
	answerTime = time.Second
	// maxWait limits the wait for a request without a deadline.
	maxWait = 30 * time.Second
)

// statePending is the state of an approval request without a decision.
const statePending = "pending"

// approver sends approval requests to the current controller of a sandbox. It implements
// egress.Approver.
type approver struct{ sandbox *attachedSandbox }

// Ask waits for a controller if there is none, because a killed server restarts. Without a decision
// the request is pending, which is not a grant.
func (a approver) Ask(ctx context.Context, q egress.ApprovalRequest) (egress.ApprovalOutcome, error) {
	// A sandbox must not request approval on behalf of another one.
	q.Sandbox = a.sandbox.id
	if a.sandbox.asking.Add(1) > maxOpenApprovals {
		a.sandbox.asking.Add(-1)
		return egress.ApprovalOutcome{State: statePending, Reason: "too many questions of this sandbox wait for a decision"}, nil
	}
	defer a.sandbox.asking.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	deadline, _ := ctx.Deadline()
	for {
		owner, changed := a.sandbox.owner()
		if owner != nil {
			answer, err := forward(ctx, owner, q, deadline)
			if !errors.Is(err, errGone) {
				return answer, err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return egress.ApprovalOutcome{State: statePending, Reason: "no server is connected that could ask a person; start the server, or run with --ask, and try again"}, nil
		case <-a.sandbox.gone:
			return egress.ApprovalOutcome{}, fault.New(fault.Canceled, "sandbox_gone", "the sandbox has ended")
		}
	}
}

// forward sends an approval request to one controller.
func forward(ctx context.Context, owner *peer, q egress.ApprovalRequest, deadline time.Time) (egress.ApprovalOutcome, error) {
	wait := time.Until(deadline) - answerTime
	if wait < answerTime {
		wait = time.Until(deadline) / 2
	}
	var answer egress.ApprovalOutcome
	err := owner.call(ctx, callAsk, askBody{Question: q, Wait: wait}, &answer)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return egress.ApprovalOutcome{State: statePending, Reason: "the question was not answered in time"}, nil
	}
	if err != nil {
		return egress.ApprovalOutcome{}, err
	}
	if answer.Granted && (answer.State != "approved" || answer.Approval == "") {
		// No approver answers like this. A grant without an approval must not count.
		return egress.ApprovalOutcome{}, fault.New(fault.Internal, "causeway_answer", "a grant without an approval")
	}
	return answer, nil
}

// adopt makes a controller the receiver of the sandbox's approval requests.
func (b *attachedSandbox) adopt(p *peer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.controller = p
	close(b.changed)
	b.changed = make(chan struct{})
}

// owner returns the connected controller, or nil, and a channel that is closed when that changes.
func (b *attachedSandbox) owner() (*peer, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.controller != nil {
		select {
		case <-b.controller.done:
			b.controller = nil
		default:
		}
	}
	return b.controller, b.changed
}
