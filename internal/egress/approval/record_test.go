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

// auditLog has the entries of a rig's audit log, and the step that the log rejects.
type auditLog struct {
	mu     sync.Mutex
	steps  []string
	refuse approval.Step
}

var errRecord = errors.New("the record cannot be written")

func (r *rig) record(_ context.Context, step approval.Step, a approval.Approval, v *approval.Vote) error {
	r.audit.mu.Lock()
	defer r.audit.mu.Unlock()
	if step == r.audit.refuse {
		return errRecord
	}
	text := string(step) + " " + string(a.State)
	if v != nil {
		text += " by " + v.Who
	}
	r.audit.steps = append(r.audit.steps, text)
	return nil
}

func (r *rig) refuses(step approval.Step) {
	r.audit.mu.Lock()
	defer r.audit.mu.Unlock()
	r.audit.refuse = step
}

// P33: each step of a request has exactly one audit entry.
func TestStepsAreRecorded(t *testing.T) {
	r := newRig(t, t.TempDir())
	a := r.ask(push())
	r.ask(push()) // the same question
	r.approve(a.Approval)
	if got := r.spend(push()); !got.Granted {
		t.Fatalf("%+v", got)
	}
	want := []string{"asked pending", "voted pending by local", "decided approved by local", "spent approved"}
	if !slices.Equal(r.audit.steps, want) {
		t.Errorf("%q, want %q", r.audit.steps, want)
	}
}

// No vote counts and no grant works if the audit log refuses the entry.
func TestNothingIsDecidedUnrecorded(t *testing.T) {
	r := newRig(t, t.TempDir())
	r.refuses(approval.StepAsked)
	if a, err := r.Ask(over(t), push()); !errors.Is(err, errRecord) || a.Granted {
		t.Errorf("asked: %+v, %v", a, err)
	}
	r.refuses(approval.StepVoted)
	a := r.ask(push())
	if _, err := r.Approve(t.Context(), local, a.Approval, "", false); !errors.Is(err, errRecord) {
		t.Errorf("voted: %v", err)
	}
	if got, err := r.Get(t.Context(), local, a.Approval); err != nil || got.State != approval.Pending || len(got.Votes) != 0 {
		t.Errorf("it is %s with %d votes, %v", got.State, len(got.Votes), err)
	}
	r.refuses(approval.StepSpent)
	r.approve(a.Approval)
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	if got, err := r.Ask(ctx, push()); !errors.Is(err, errRecord) || got.Granted {
		t.Errorf("spent: %+v, %v", got, err)
	}
	// The grant is used up anyway, because it is valid once.
	r.refuses("")
	if got, err := r.Get(t.Context(), local, a.Approval); err != nil || got.State != approval.Spent {
		t.Errorf("it is %s, %v", got.State, err)
	}
}
