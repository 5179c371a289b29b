package engine

import "context"

// Observer is the ability to write down what programs in a sandbox do: each
// program that is executed, each process that ends, each file that is changed.
// Such an engine adds lines of package witness to Spec.Events, by itself and
// not by the guest, so that no program inside can forge, hide or stop them.
// An engine without it refuses a Spec with Events.
type Observer interface {
	// Survey writes down at once what has become of all files that were
	// changed and not yet written down, and returns when the events are in the
	// file. The engine does the same by itself when a command ends, before it
	// saves or replaces the sandbox, and when the guest has ended. The file
	// itself goes on being written until the sandbox is removed.
	//
	// Of a sandbox without Events it is a fault with the code "not_watched", of
	// one that is being saved "sandbox_stands_still"; where the file had no room
	// "events_full", and what is left comes with the next survey.
	Survey(ctx context.Context, id string) error
}
