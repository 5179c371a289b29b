package sandbox

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/audit/recording"
)

// Recordings are of what commands in sandboxes printed; recording.Shelf has
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
	// Kept says whether they outlive it now, ListKept of which ones that was
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

// Recorded is what surfaces use of recordings, beside reading them.
type Recorded interface {
	// Recorded finds the sandbox whose recordings a caller means and may read:
	// one that there is, or by its ID one that has ended and whose recordings
	// are kept, which only local callers may.
	Recorded(ctx context.Context, who Principal, ref string) (id string, err error)
	// KeepRecordings keeps what commands in a sandbox printed beyond its end, for
	// as long as changes are kept; with an empty ID there is nothing. Only local
	// callers may.
	KeepRecordings(ctx context.Context, who Principal, ref string) (KeptRecordings, error)
	// ListRecordings returns what was kept of ended sandboxes, newest first.
	ListRecordings(ctx context.Context, who Principal) ([]KeptRecordings, error)
	// DiscardRecordings drops what was kept of a sandbox.
	DiscardRecordings(ctx context.Context, who Principal, id string) error
}
