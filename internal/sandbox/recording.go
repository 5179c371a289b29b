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
	// Retain makes the recordings of a sandbox outlive it, and reports whether there are any.
	// Discard reverses that.
	Retain(k recording.Retained) (bool, error)
	Discard(id string) error
	// Retained returns the description of a sandbox's retained recordings, if there are any.
	Retained(id string) (recording.Retained, bool)
	// ListRetained returns all retained recordings, newest first.
	ListRetained() ([]recording.Retained, error)
}

// KeptRecordings are the recordings of commands in an ended sandbox.
type KeptRecordings struct {
	ID                 string // of the sandbox
	Workspace          string
	TakenAt, ExpiresAt time.Time
}
