package lifecycle_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// fakeApprovals leaves each request pending. After a test sets granted, it grants the next request,
// once.
type fakeApprovals struct {
	mu      sync.Mutex
	asked   []egress.ApprovalRequest
	granted bool
}

func (d *fakeApprovals) Ask(_ context.Context, q egress.ApprovalRequest) (egress.ApprovalOutcome, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, q)
	if d.granted {
		d.granted = false
		return egress.ApprovalOutcome{Granted: true, State: "approved", Approval: "a1"}, nil
	}
	return egress.ApprovalOutcome{State: "pending", Approval: "a1"}, nil
}

func (d *fakeApprovals) Retire(context.Context, string, string, string) error { return nil }

func replaceWith(a sandbox.Access) func(sandbox.Access) (sandbox.Access, error) {
	return func(sandbox.Access) (sandbox.Access, error) { return a, nil }
}

func TestWideningStrictPolicyNeedsApproval(t *testing.T) {
	d := &fakeApprovals{}
	r := newRig(t, func(deps *lifecycle.Deps) { deps.Approvals = d })
	ctx := t.Context()
	strict := sandbox.Access{Level: "strict", Net: sandbox.NetNone}
	light := sandbox.Access{Level: "light", Net: sandbox.NetNone}
	sb, err := r.Create(ctx, alice, sandbox.CreateRequest{Template: "base", Access: strict})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.SetAccess(ctx, alice, sb.ID, replaceWith(light))
	wantKind(t, err, fault.Denied, "policy_widening_pending")
	if hint := fault.HintOf(err); !strings.Contains(hint, "2 people must approve: ") || !strings.Contains(hint, "the sandbox's key") {
		t.Errorf("the hint does not say whose approval counts: %q", hint)
	}
	if got, err := r.Get(ctx, alice, sb.ID); err != nil || got.PolicyLevel != "strict" {
		t.Fatalf("the level is %q, %v", got.PolicyLevel, err)
	}
	if len(d.asked) != 1 || d.asked[0].Kind != egress.AskWiden || d.asked[0].Quorum != 2 || d.asked[0].Facts["wider"] == "" {
		t.Fatalf("approval requests: got %+v, want one for 2 people", d.asked)
	}
	d.granted = true
	if got, err := r.SetAccess(ctx, alice, sb.ID, replaceWith(light)); err != nil || got.PolicyLevel != "light" {
		t.Fatalf("granted: the level is %q, %v", got.PolicyLevel, err)
	}
	// Making a policy stricter never asks, nor does a policy that is not strict.
	if _, err := r.SetAccess(ctx, alice, sb.ID, replaceWith(strict)); err != nil {
		t.Fatal(err)
	}
	if len(d.asked) != 2 {
		t.Errorf("asked %d times", len(d.asked))
	}
}
