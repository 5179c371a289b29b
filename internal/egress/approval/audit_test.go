package approval_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// auditLog holds the entries of a rig's audit log, and the step whose entry the log rejects.
type auditLog struct {
	mu     sync.Mutex
	steps  []string
	reject approval.Step
}

var errRecord = errors.New("the audit entry cannot be written")

func (r *rig) record(_ context.Context, step approval.Step, a approval.Approval, v *approval.Vote) error {
	r.audit.mu.Lock()
	defer r.audit.mu.Unlock()
	if step == r.audit.reject {
		return errRecord
	}
	text := string(step) + " " + string(a.State)
	if v != nil {
		text += " by " + v.Who
	}
	r.audit.steps = append(r.audit.steps, text)
	return nil
}

func (r *rig) rejectStep(step approval.Step) {
	r.audit.mu.Lock()
	defer r.audit.mu.Unlock()
	r.audit.reject = step
}

// Promise P33 (docs/reference/promises.md): each step of a request has exactly one audit entry.
func TestEachStepHasOneAuditEntry(t *testing.T) {
	r := newRig(t, t.TempDir())
	a := r.ask(postRequest())
	r.ask(postRequest()) // the same request
	r.approve(a.Approval)
	if got := r.spend(postRequest()); !got.Granted {
		t.Fatalf("use of the grant: got %+v, want granted", got)
	}
	want := []string{"asked pending", "voted pending by local", "decided approved by local", "spent approved"}
	if !slices.Equal(r.audit.steps, want) {
		t.Errorf("audit steps: got %q, want %q", r.audit.steps, want)
	}
}

// No vote counts and no grant works if the audit log rejects the entry.
func TestDecisionsRequireAuditEntry(t *testing.T) {
	r := newRig(t, t.TempDir())
	r.rejectStep(approval.StepAsked)
	if a, err := r.Ask(cancelledContext(t), postRequest()); !errors.Is(err, errRecord) || a.Granted {
		t.Errorf("Ask without an audit entry: got %+v, %v, want errRecord", a, err)
	}
	r.rejectStep(approval.StepVoted)
	a := r.ask(postRequest())
	if _, err := r.Approve(t.Context(), local, a.Approval, "", false); !errors.Is(err, errRecord) {
		t.Errorf("Approve without an audit entry: got %v, want errRecord", err)
	}
	if got, err := r.Get(t.Context(), local, a.Approval); err != nil || got.State != approval.Pending || len(got.Votes) != 0 {
		t.Errorf("the request is %s with %d votes, want pending without votes: %v", got.State, len(got.Votes), err)
	}
	r.rejectStep(approval.StepSpent)
	r.approve(a.Approval)
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	if got, err := r.Ask(ctx, postRequest()); !errors.Is(err, errRecord) || got.Granted {
		t.Errorf("use of the grant without an audit entry: got %+v, %v, want errRecord", got, err)
	}
	// The grant is used up anyway, because it is valid once.
	r.rejectStep("")
	if got, err := r.Get(t.Context(), local, a.Approval); err != nil || got.State != approval.Spent {
		t.Errorf("the request is %s, want spent: %v", got.State, err)
	}
}
