package approval

import (
	"context"
	"time"
)

// Bounds limit the approval requests of a program, so that it cannot flood people.
type Bounds struct {
	// Open is the number of pending requests of one kind that a sandbox may have.
	Open int
	// Recent is the number of requests of one kind within Window, decided or not.
	Recent int
	Window time.Duration
}

// Query selects approvals.
type Query struct {
	// Owner selects the sandboxes of one key; AllOwners selects all.
	Owner     string
	AllOwners bool
	Sandbox   string  // "" is all
	States    []State // none is all
	Limit     int     // zero is the default of 100
}

// Decisions stores approval requests and changes them. Several processes may use the same
// rows concurrently, so each method is one transaction.
type Decisions interface {
	// RaiseApproval returns the current request for the digest: a pending one, or a
	// denied one that would not have expired yet. If there is none, it adds a, or
	// returns Exhausted if the bounds are reached.
	RaiseApproval(ctx context.Context, a Approval, b Bounds) (Approval, error)
	// SpendApproval uses a grant and reports whether it did: the request must be
	// approved, for this digest, and not expired. It succeeds once.
	SpendApproval(ctx context.Context, id, digest string, at time.Time) (bool, error)
	// VoteApproval counts the decision of one person and returns the result. One denial
	// denies a pending request; grants of enough different people approve it. It returns
	// Conflict for a request that is not open and for a second grant of one person.
	VoteApproval(ctx context.Context, id string, v Vote) (Approval, error)
	// RetireApprovals ends the open requests of a sandbox, except those under the policy with the
	// digest keep and those with an amendment. If keep is "", it ends all.
	RetireApprovals(ctx context.Context, sandbox, keep, reason string, at time.Time) error
	// DropAmendment removes the amendment of a grant whose policy change failed.
	DropAmendment(ctx context.Context, id string) error
	// SweepApprovals ends expired requests and returns the number of the last event, or
	// zero.
	SweepApprovals(ctx context.Context, at time.Time) (int64, error)
}

// Listing reads approvals.
type Listing interface {
	// Approval finds a request by its ID, or returns NotFound.
	Approval(ctx context.Context, id string) (Approval, error)
	// Approvals returns the requests that a query selects, the newest first.
	Approvals(ctx context.Context, q Query) ([]Approval, error)
	// ApprovalEvents returns the events after a number that concern the
	// query's owner and sandbox, oldest first, at most 100.
	ApprovalEvents(ctx context.Context, q Query, after int64) ([]Event, error)
}

// Store is the storage of the Service.
type Store interface {
	Decisions
	Listing
}
