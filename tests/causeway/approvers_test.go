package causeway_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/crannog/crannog/api"
)

// approvers decide the approval requests of sandboxes.
type approvers struct {
	t           testing.TB
	environment *environment
	mu          sync.Mutex
	approve     func(api.Approval) bool // nil leaves requests undecided
	list        []api.Approval
}

// newApprovers watches the approval requests of an environment until the test ends.
func newApprovers(t testing.TB, a *environment) *approvers {
	t.Helper()
	p := &approvers{t: t, environment: a}
	ctx, stop := context.WithCancel(noContext())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = a.client.WatchApprovals(ctx, "", "", func(e api.ApprovalEvent) error { p.decide(ctx, e.Approval); return nil })
	}()
	t.Cleanup(func() { stop(); <-done })
	return p
}

// decide approves or denies a request that was not seen before.
func (p *approvers) decide(ctx context.Context, q api.Approval) {
	p.mu.Lock()
	known := slices.ContainsFunc(p.list, func(o api.Approval) bool { return o.ID == q.ID })
	if !known {
		p.list = append(p.list, q)
	}
	approve := p.approve
	p.mu.Unlock()
	if known || approve == nil || q.State != "pending" {
		return
	}
	var err error
	if approve(q) {
		_, err = p.environment.client.Approve(ctx, q.ID, "", false)
	} else {
		_, err = p.environment.client.Deny(ctx, q.ID, "not today")
	}
	if err != nil && ctx.Err() == nil {
		p.t.Errorf("decide approval request %s: %v", q.ID, err)
	}
}

// answer sets the function that decides the next requests.
func (p *approvers) answer(approve func(api.Approval) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.approve = approve
}

// asked returns the approval requests so far.
func (p *approvers) asked() []api.Approval {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.list)
}
