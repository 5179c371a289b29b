package gateway

import (
	"context"
	"encoding/json"
	"os"
	"sync"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
)

// handle handles messages of the gateway process. That process constantly reads hostile data and
// may have been taken over, so its messages are only requests and never trusted.
func (c *Client) handle(ctx context.Context, call string, body json.RawMessage, files []*os.File) (any, error) {
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	switch call {
	case callKeep:
		return struct{}{}, c.keep(body, files)
	case callExamine:
		return c.examine(ctx, body, files)
	case callAsk:
		var ask askBody
		if err := strict(body, &ask); err != nil {
			return nil, badMessage(err)
		}
		return c.answer(ctx, ask)
	case callEvent:
		var e Event
		if err := strict(body, &e); err != nil {
			return nil, badMessage(err)
		}
		c.events.put(e)
		return nil, nil
	}
	return nil, fault.Newf(fault.Invalid, "causeway_protocol", "there is no call named %q", call)
}

// answer forwards an approval request to this client's approver.
func (c *Client) answer(ctx context.Context, ask askBody) (egress.ApprovalOutcome, error) {
	c.mu.Lock()
	controls := c.controlled[ask.Question.Sandbox]
	c.mu.Unlock()
	if !controls {
		return egress.ApprovalOutcome{}, fault.Newf(fault.NotFound, "sandbox_not_found", "sandbox %q does not belong to this controller", ask.Question.Sandbox)
	}
	if c.approver == nil {
		return egress.ApprovalOutcome{State: statePending, Reason: "approval requests are not decided here; start the server, or run with --ask, and try again"}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(max(ask.Wait, 0), maxWait))
	defer cancel()
	return c.approver.Ask(ctx, ask.Question)
}

// queue holds events for a function, so that a slow function does not block the connection on which
// they arrive.
type queue struct {
	mu    sync.Mutex
	more  *sync.Cond
	list  []Event
	ended bool
}

// maxEvents limits a queue whose reader has stopped. The oldest events are dropped; List returns
// the resulting state.
const maxEvents = 4096

func newQueue(deliver func(Event)) *queue {
	q := &queue{ended: deliver == nil}
	q.more = sync.NewCond(&q.mu)
	if deliver != nil {
		go q.run(deliver)
	}
	return q
}

func (q *queue) put(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return
	}
	if len(q.list) >= maxEvents {
		q.list = q.list[1:]
	}
	q.list = append(q.list, e)
	q.more.Signal()
}

func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.more.Signal()
}

func (q *queue) run(deliver func(Event)) {
	for {
		q.mu.Lock()
		for len(q.list) == 0 && !q.ended {
			q.more.Wait()
		}
		list := q.list
		q.list = nil
		q.mu.Unlock()
		if len(list) == 0 {
			return
		}
		for _, e := range list {
			deliver(e)
		}
	}
}
