package live

import (
	"context"
	"slices"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress/approval"
)

const (
	// maxEvents bounds the buffered events of approval requests. A stream that is further behind
	// gets the whole list again.
	maxEvents = 256
	// maxPending bounds the approval requests that are shown at once.
	maxPending = 1000
)

// approvalList contains the pending approval requests, and the latest events about them.
type approvalList struct {
	ready   bool
	pending map[string]api.Approval
	// pendingCount is the number of pending requests, by sandbox.
	pendingCount map[string]int
	events       []api.ApprovalEvent
	next         int64 // number of the next event, from 0
}

func newApprovalList() *approvalList {
	return &approvalList{pending: map[string]api.Approval{}, pendingCount: map[string]int{}}
}

// watchApprovals follows approval requests and decisions.
func (l *Live) watchApprovals(ctx context.Context) {
	caller := approval.Caller{Local: true}
	for ctx.Err() == nil {
		open, err := l.deps.Approvals.List(ctx, caller, approval.Query{States: []approval.State{approval.Pending}, Limit: maxPending})
		if err == nil {
			l.mu.Lock()
			l.approvals.reset(open, l.rows)
			l.wake()
			l.mu.Unlock()
			err = l.deps.Approvals.Watch(ctx, caller, approval.Query{Limit: maxPending}, approval.FromNow, l.handle)
		}
		if err == nil {
			return // the service has ended
		}
		if ctx.Err() == nil {
			l.deps.Log.Warn("console: approvals cannot be followed", "err", err)
			pause(ctx, retry)
		}
	}
}

func (l *Live) handle(e approval.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.approvals.take(approval.ShowEvent(e), l.rows) {
		for _, s := range l.streams {
			if s.topics.approvals {
				s.notify()
			}
		}
	}
	return nil
}

// reset replaces the list of pending requests.
func (a *approvalList) reset(open []approval.Approval, f *rowTable) {
	for id := range a.pendingCount {
		f.markChanged(id)
	}
	clear(a.pending)
	clear(a.pendingCount)
	for _, one := range open {
		a.put(approval.Show(one), f)
	}
	// A page with an earlier list gets the new one.
	a.ready, a.events, a.next = true, nil, a.next+maxEvents+1
}

func (a *approvalList) put(one api.Approval, f *rowTable) {
	if _, there := a.pending[one.ID]; !there {
		a.pendingCount[one.Sandbox]++
	}
	a.pending[one.ID] = one
	f.markChanged(one.Sandbox)
}

func (a *approvalList) drop(id string, f *rowTable) {
	one, there := a.pending[id]
	if !there {
		return
	}
	delete(a.pending, id)
	if a.pendingCount[one.Sandbox]--; a.pendingCount[one.Sandbox] <= 0 {
		delete(a.pendingCount, one.Sandbox)
	}
	f.markChanged(one.Sandbox)
}

// take processes an event, and reports whether it is new.
func (a *approvalList) take(e api.ApprovalEvent, f *rowTable) bool {
	old, there := a.pending[e.Approval.ID]
	if e.Approval.State != string(approval.Pending) {
		a.drop(e.Approval.ID, f)
	} else {
		if there && len(old.Votes) == len(e.Approval.Votes) {
			return false // it was in the list
		}
		a.put(e.Approval, f)
	}
	a.events = append(a.events, e)
	a.next++
	if over := len(a.events) - maxEvents; over > 0 {
		a.events = slices.Delete(a.events, 0, over)
	}
	return true
}

// send writes events that a stream has not received. A new stream gets the whole list first.
func (a *approvalList) send(s *stream, out *frames) {
	if !a.ready || s.event == a.next {
		return
	}
	first := a.next - int64(len(a.events))
	if s.event < first {
		if s.event >= 0 {
			out.event("gap", gap{"approvals", "some events were skipped; this is the list of pending requests"})
		}
		list := struct {
			Approvals []api.Approval `json:"approvals"`
		}{make([]api.Approval, 0, len(a.pending))}
		for _, one := range a.pending {
			list.Approvals = append(list.Approvals, one)
		}
		slices.SortFunc(list.Approvals, func(x, y api.Approval) int { return y.CreatedAt.Compare(x.CreatedAt) })
		out.event("approvals", list)
		s.event = a.next
		return
	}
	for _, e := range a.events[s.event-first:] {
		out.event("approval", e)
	}
	s.event = a.next
}
