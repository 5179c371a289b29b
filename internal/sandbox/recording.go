package sandbox

import (
	"time"

	"github.com/crannog/crannog/internal/audit/recording"
)

// Recordings are of what commands in sandboxes printed; recording.Store has
// them.
type Recordings interface {
	// List names the sandboxes of which something is kept.
	List() ([]string, error)
	// Remove drops all of one sandbox. None is success.
	Remove(id string) error
	// Release closes what is open of one sandbox, and keeps it.
	Release(id string) error
	// Keep lets those of a sandbox outlive it, if there are any, and Let takes
	// that back.
	Keep(k recording.Kept) (bool, error)
	Let(id string) error
	// Kept reports whether they outlive it now, ListKept of which ones that was
	// said at any time, the newest first.
	Kept(id string) (recording.Kept, bool)
	ListKept() ([]recording.Kept, error)
}

// KeptRecordings are what is left of what commands in an ended sandbox printed.
type KeptRecordings struct {
	ID                 string // of the sandbox
	Workspace          string
	TakenAt, ExpiresAt time.Time
}
