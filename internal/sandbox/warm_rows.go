package sandbox

import "context"

// Waiting is a sandbox that is ready, or is being made, and has no owner yet. The
// process that made it hands it out; if that process dies, the sandbox is removed.
const Waiting State = "waiting"

// Claims gives waiting sandboxes to callers.
type Claims interface {
	// Claim turns a waiting row into that of the record, whose state is
	// Running, and reports whether there was one. If max sandboxes are live
	// already that is Exhausted; if the owner has a live one of that name,
	// Exists. All is decided in one step.
	Claim(ctx context.Context, r Row, max int) (bool, error)
}
