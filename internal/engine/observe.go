package engine

import "context"

// Observer is the ability to write down what programs in a sandbox do: each
// program that is executed, each process that ends, each file that is changed.
// Such an engine adds lines of package witness to Spec.Events, by itself and
// not by the guest, so that no program inside can forge, hide or stop them.
// An engine without it refuses a Spec with Events.
type Observer interface {
	// Survey records at once what has become of all files that were changed since they were last
	// recorded. It returns when the events are in the file. The engine does the same by itself when
	// a command ends, before it saves or replaces the sandbox, and when the guest has ended. The
	// file itself is written until the sandbox is removed.
	//
	// The fault has the code "not_watched" for a sandbox without Events, and "sandbox_stands_still"
	// for one that is being saved. Where the file had no room it has "events_full", and the rest of
	// the events follow with the next survey.
	Survey(ctx context.Context, id string) error
}
