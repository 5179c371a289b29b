package causeway_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/crannog/crannog/api"
)

// approvers answer the questions of sandboxes.
type approvers struct {
	t           testing.TB
	environment *environment
	mu          sync.Mutex
	yes         func(api.Approval) bool // nil leaves them open
	list        []api.Approval
}

func newApprovers(t testing.TB, a *environment) *approvers {
	t.Helper()
	p := &approvers{t: t, environment: a}
	ctx, stop := context.WithCancel(noContext())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = a.client.WatchApprovals(ctx, "", "", func(e api.ApprovalEvent) error { p.met(ctx, e.Approval); return nil })
	}()
	t.Cleanup(func() { stop(); <-done })
	return p
}

func (p *approvers) met(ctx context.Context, q api.Approval) {
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
		_, err = p.environment.client.Approve(ctx, q.ID, "", false)
	} else {
		_, err = p.environment.client.Deny(ctx, q.ID, "not today")
	}
	if err != nil && ctx.Err() == nil {
		p.t.Errorf("answer %s: %v", q.ID, err)
	}
}

// answer sets how questions are answered.
func (p *approvers) answer(yes func(api.Approval) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.yes = yes
}

// asked returns the questions so far.
func (p *approvers) asked() []api.Approval {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.list)
}
