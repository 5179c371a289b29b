package sandbox

import (
	"time"

	"github.com/crannog/crannog/internal/audit/recording"
)

// Recordings stores the output of commands in sandboxes; recording.Store implements it.
type Recordings interface {
	// List returns the sandboxes with recordings.
	List() ([]string, error)
	// Remove removes all recordings of one sandbox. It succeeds if there are none.
	Remove(id string) error
	// Release closes the open recordings of one sandbox without removing them.
	Release(id string) error
	// Keep marks the recordings of a sandbox, if there are any, to outlive it. Let removes the
	// mark.
	Keep(k recording.Kept) (bool, error)
	Let(id string) error
	// Kept reports whether a sandbox's recordings are marked. ListKept returns the sandboxes that
	// were ever marked, the newest first.
	Kept(id string) (recording.Kept, bool)
	ListKept() ([]recording.Kept, error)
}

// KeptRecordings are the recordings of commands in an ended sandbox.
type KeptRecordings struct {
	ID                 string // of the sandbox
	Workspace          string
	TakenAt, ExpiresAt time.Time
}
