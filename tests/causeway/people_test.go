package causeway_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/crannog/crannog/api"
)

// people answer the questions of sandboxes.
type people struct {
	t     testing.TB
	arena *arena
	mu    sync.Mutex
	yes   func(api.Approval) bool // nil leaves them open
	list  []api.Approval
}

func newPeople(t testing.TB, a *arena) *people {
	t.Helper()
	p := &people{t: t, arena: a}
	ctx, stop := context.WithCancel(noContext())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = a.client.WatchApprovals(ctx, "", "", func(e api.ApprovalEvent) error { p.met(ctx, e.Approval); return nil })
	}()
	t.Cleanup(func() { stop(); <-done })
	return p
}

func (p *people) met(ctx context.Context, q api.Approval) {
	p.mu.Lock()
	known := slices.ContainsFunc(p.list, func(o api.Approval) bool { return o.ID == q.ID })
	if !known {
		p.list = append(p.list, q)
	}
	yes := p.yes
	p.mu.Unlock()
	if known || yes == nil || q.State != "pending" {
		return
	}
	var err error
	if yes(q) {
		_, err = p.arena.client.Approve(ctx, q.ID, "", false)
	} else {
		_, err = p.arena.client.Deny(ctx, q.ID, "not today")
	}
	if err != nil && ctx.Err() == nil {
		p.t.Errorf("answer %s: %v", q.ID, err)
	}
}

// answer sets how questions are answered.
func (p *people) answer(yes func(api.Approval) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.yes = yes
}

// asked returns the questions so far.
func (p *people) asked() []api.Approval {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.list)
}
