package engine

import "context"

// Observer is the ability to record what programs in a sandbox do: each program that is executed,
// each process that ends, each file that is changed. The engine itself, not the guest, appends
// events to Spec.Events. Therefore no program in the sandbox can forge, hide or stop them. An
// engine without this ability refuses a Spec with Events.
type Observer interface {
	// Survey records the present state of all files that have changed since the last survey. It
	// returns when the events are in the file. The engine also makes a survey when a command ends,
	// before it saves or replaces the sandbox, and when the guest has ended. It writes to the file
	// until the sandbox is removed.
	//
	// The fault has the code "not_watched" for a sandbox without Events, and "sandbox_stands_still"
	// for a sandbox that is being saved. If the file is full, the code is "events_full", and the
	// next survey records the remaining events.
	Survey(ctx context.Context, id string) error
}
