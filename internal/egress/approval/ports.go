package approval

import (
	"context"
	"time"
)

// Bounds keep a program from flooding people with questions.
type Bounds struct {
	// Open is how many questions of one kind a sandbox may have pending.
	Open int
	// Recent is how many of one kind it may ask within Window, whatever came
	// of them.
	Recent int
	Window time.Duration
}

// Query selects approvals.
type Query struct {
	// Owner limits to one key's sandboxes; AllOwners lifts that.
	Owner     string
	AllOwners bool
	Sandbox   string  // "" is all
	States    []State // none is all
	Limit     int     // zero is the default of 100
}

// Decisions keeps questions and changes them. Several processes may use the
// same rows at once, so each method is one transaction.
type Decisions interface {
	// RaiseApproval returns what stands for the digest: an open question, or
	// one that was denied and would not have expired yet. Where nothing does,
	// it adds a, or is Exhausted if that goes beyond the bounds.
	RaiseApproval(ctx context.Context, a Approval, b Bounds) (Approval, error)
	// SpendApproval uses up a grant and reports whether it did: the row must
	// be approved, for this digest, and not expired. It succeeds once.
	SpendApproval(ctx context.Context, id, digest string, at time.Time) (bool, error)
	// VoteApproval counts one person's word and returns what came of it. One
	// denial ends an open question; grants of enough different people
	// approve a pending one. What is not open is Conflict, and so is a second
	// grant of the same person.
	VoteApproval(ctx context.Context, id string, v Vote) (Approval, error)
	// RetireApprovals ends what is open for a sandbox, except what was asked
	// under the policy keep and what has an amendment; "" keeps nothing.
	RetireApprovals(ctx context.Context, sandbox, keep, reason string, at time.Time) error
	// DropAmendment says that a grant changed no policy after all.
	DropAmendment(ctx context.Context, id string) error
	// SweepApprovals ends what has expired and returns the last event's
	// number, zero if there is none.
	SweepApprovals(ctx context.Context, at time.Time) (int64, error)
}

// Listing reads approvals.
type Listing interface {
	// Approval finds one by its ID, or is NotFound.
	Approval(ctx context.Context, id string) (Approval, error)
	// Approvals returns those that a query selects, the newest first.
	Approvals(ctx context.Context, q Query) ([]Approval, error)
	// ApprovalEvents returns the events after a number that concern the
	// query's owner and sandbox, oldest first, at most 100.
	ApprovalEvents(ctx context.Context, q Query, after int64) ([]Event, error)
}

// Store is all that the Service keeps.
type Store interface {
	Decisions
	Listing
}
