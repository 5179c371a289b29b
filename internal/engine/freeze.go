package engine

import (
	"context"

	"github.com/crannog/crannog/internal/fault"
)

// Freezer is the ability to let a sandbox stand still in memory, at no cost of
// processor time, and to let it continue where it was.
type Freezer interface {
	// Freeze returns when no program of the sandbox runs any more. The sandbox stays
	// frozen, also after a restart of this process, until Thaw or Remove. It counts as
	// running, and Dial may wait until it is thawed. Checkpoint, Archive and Replace
	// refuse it with CodeFrozen. Freezing a frozen sandbox succeeds; an unknown or
	// stopped one is NotFound.
	Freeze(ctx context.Context, id string) error

	// Thaw lets the programs continue. Streams that led into the sandbox are still
	// there. Thawing a sandbox that is not frozen succeeds; an unknown or stopped one
	// is NotFound.
	Thaw(ctx context.Context, id string) error
}

// CodeFrozen is the code of the fault of an operation that a frozen sandbox refuses.
const CodeFrozen = "sandbox_frozen"

// Frozen returns the fault of an operation that a frozen sandbox refuses.
func Frozen(id string) error {
	return fault.Newf(fault.Conflict, CodeFrozen, "sandbox %q is frozen", id).WithHint("thaw it first")
}
