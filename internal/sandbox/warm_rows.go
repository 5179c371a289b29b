package sandbox

import "context"

// Waiting is the state of a sandbox without an owner: a warm one, or one that the pool is still
// creating. The process that created it hands it out; if that process dies, the sandbox is removed.
const Waiting State = "waiting"

// WarmRows hands warm sandboxes to callers.
type WarmRows interface {
	// Acquire turns the row of a warm sandbox into the given row, whose state is Running, and
	// reports whether there was one. The error is Exhausted if max sandboxes are live already, and
	// Exists if the owner has a live one of that name. All is done in one transaction.
	Acquire(ctx context.Context, r Row, max int) (bool, error)
}
