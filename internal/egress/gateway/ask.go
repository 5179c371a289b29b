package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
)

const (
	// maxQuestions is how many questions of one sandbox may be open at once, so that a sandbox
	// cannot flood people, or us, with questions.
	maxQuestions = 32
	// answerTime is subtracted from the wait, for the transfer of the answer.
	answerTime = time.Second
	// maxWait limits a question whose asker set no deadline.
	maxWait = 30 * time.Second
)

// statePending is the state of an approval request without a decision.
const statePending = "pending"

// asker sends approval requests to the current controller of a sandbox. It implements
// egress.Asker.
type asker struct{ box *box }

// Ask waits for a controller if there is none, because a killed server restarts. Without a decision
// the request is pending, which is not a grant.
func (a asker) Ask(ctx context.Context, q egress.Question) (egress.Answer, error) {
	// A sandbox cannot ask in another one's name.
	q.Sandbox = a.box.id
	if a.box.asking.Add(1) > maxQuestions {
		a.box.asking.Add(-1)
		return egress.Answer{State: statePending, Reason: "too many questions of this sandbox wait for a decision"}, nil
	}
	defer a.box.asking.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	deadline, _ := ctx.Deadline()
	for {
		owner, changed := a.box.owner()
		if owner != nil {
			answer, err := put(ctx, owner, q, deadline)
			if !errors.Is(err, errGone) {
				return answer, err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return egress.Answer{State: statePending, Reason: "no server is connected that could ask a person; start the server, or run with --ask, and try again"}, nil
		case <-a.box.gone:
			return egress.Answer{}, fault.New(fault.Canceled, "sandbox_gone", "the sandbox has ended")
		}
	}
}

// put sends a question to one controller.
func put(ctx context.Context, owner *peer, q egress.Question, deadline time.Time) (egress.Answer, error) {
	wait := time.Until(deadline) - answerTime
	if wait < answerTime {
		wait = time.Until(deadline) / 2
	}
	var answer egress.Answer
	err := owner.call(ctx, callAsk, askBody{Question: q, Wait: wait}, &answer)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return egress.Answer{State: statePending, Reason: "the question was not answered in time"}, nil
	}
	if err != nil {
		return egress.Answer{}, err
	}
	if answer.Granted && (answer.State != "approved" || answer.Approval == "") {
		// No approver can have meant this, and in doubt it is not a grant.
		return egress.Answer{}, fault.New(fault.Internal, "causeway_answer", "a grant without an approval")
	}
	return answer, nil
}

// adopt makes a controller the one that gets the sandbox's questions.
func (b *box) adopt(p *peer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.controller = p
	close(b.changed)
	b.changed = make(chan struct{})
}

// owner returns the connected controller, or nil, and a channel that is closed when that changes.
func (b *box) owner() (*peer, <-chan struct{}) {
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
