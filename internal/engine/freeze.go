package engine

import (
	"context"

	"github.com/crannog/crannog/internal/fault"
)

// Freezer is the ability to stop all processes of a sandbox without saving its memory, and to let
// them continue.
type Freezer interface {
	// Freeze stops the programs of a sandbox and returns when none of them runs. The sandbox stays
	// frozen, also after a restart of this process, until Thaw or Remove. It counts as running, and
	// Dial may wait until it is thawed. Checkpoint, Archive and Replace return an error with
	// CodeFrozen. Freezing a frozen sandbox succeeds. An unknown or stopped sandbox is NotFound.
	Freeze(ctx context.Context, id string) error

	// Thaw lets the programs continue. Open streams into the sandbox survive. Thawing a sandbox
	// that is not frozen succeeds. An unknown or stopped sandbox is NotFound.
	Thaw(ctx context.Context, id string) error
}

// CodeFrozen is the code of the fault of an operation that is refused because the sandbox is
// frozen.
const CodeFrozen = "sandbox_frozen"

// Frozen returns the fault of an operation that is refused because the sandbox is frozen.
func Frozen(id string) error {
	return fault.Newf(fault.Conflict, CodeFrozen, "sandbox %q is frozen", id).WithHint("thaw it first")
}
