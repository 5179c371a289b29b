package sandbox

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/packages/lockfile"
)

// Rows stores one row per sandbox. Several processes may use the same rows at once, so every change
// specifies the expected states.
type Rows interface {
	// Insert adds a row in the state Creating. The error is Exhausted if max sandboxes are live
	// already, and Exists if the owner has a live one of that name. Both are checked atomically
	// with the insertion.
	Insert(ctx context.Context, r Row, max int) error
	// Get finds a row by its ID. The error is NotFound if there is none.
	Get(ctx context.Context, id string) (Row, error)
	// Find returns the rows that a name or ID prefix may mean, at most two of each rank, best rank
	// first: live by name, stopped by name, ID prefix.
	Find(ctx context.Context, ref string, caller Principal) ([]Row, error)
	// Move changes the state and reports whether the row was in one of the expected states.
	Move(ctx context.Context, id string, m Move) (bool, error)
	// SetEnd changes the end of a running sandbox and reports whether it did. With onlyLater it
	// changes nothing if the new end is earlier than the row's.
	SetEnd(ctx context.Context, id string, end time.Time, onlyLater bool) (bool, error)
	// SetAccess changes what a sandbox may reach.
	SetAccess(ctx context.Context, id string, a Access, level, digest string) error
	// Delete removes the row and its log. It succeeds for an unknown ID.
	Delete(ctx context.Context, id string) error
}

// Move is a change of state.
type Move struct {
	From   []State
	To     State
	Reason string    // ignored if the row has one already
	At     time.Time // when it stopped, for Stopped
	// EndedBy, unless zero, makes the move only if the row's end is not
	// later: another process may have extended it.
	EndedBy time.Time
	// By, unless zero, is the process that acts on the sandbox in the new state.
	By Process
	// WasBy and Run, unless zero, make the move only if the row is at that run and that process
	// acts on it.
	WasBy Process
	Run   int64
	// Next increments the run.
	Next bool
	// MaxLive and MaxPaused, unless zero, make the move only if fewer rows are
	// live or paused; otherwise it is Exhausted.
	MaxLive, MaxPaused int
	// Change, unless nil, is stored with the new state.
	Change *Change
}

// Change contains the fields that a move stores beside the state. Nil fields stay unchanged.
type Change struct {
	PausedAt *time.Time
	EndAt    *time.Time
	Saved    *Saved
	Pending  *string
	At       *string // the snapshot that it last came from
	Checked  []string
	Base     *Base
}

// Query selects rows.
type Query struct {
	Filter
	// Owner selects one key's rows, or all with AllOwners.
	Owner     string
	AllOwners bool
	// StoppedBefore, unless zero, selects only rows that stopped before it.
	StoppedBefore time.Time
	// Ephemeral selects only rows that end with their process.
	Ephemeral bool
	// Skip skips that many rows.
	Skip int
}

// SnapshotRows stores one row per snapshot.
type SnapshotRows interface {
	// InsertSnapshot adds a row that only GetSnapshot returns until KeepSnapshot is called.
	InsertSnapshot(ctx context.Context, s Stored) error
	// KeepSnapshot makes the row visible, takes its name away from other snapshots of its owner,
	// and records it as the latest snapshot of its sandbox.
	KeepSnapshot(ctx context.Context, id, sum string, bytes int64, needs *Needs) error
	// GetSnapshot finds a row by its ID, even if it is not visible yet. The error is NotFound if
	// there is none.
	GetSnapshot(ctx context.Context, id string) (Stored, error)
	// ListSnapshots returns rows newest first. A limit of zero means no limit.
	ListSnapshots(ctx context.Context, q SnapshotQuery) ([]Stored, error)
	// DeleteSnapshot removes the row. For sandboxes and snapshots whose parent it was, its own
	// parent takes its place. It succeeds for an unknown ID.
	DeleteSnapshot(ctx context.Context, id string) error
	// Holds reports whether a copy of a workspace is needed by a snapshot, or by a sandbox other
	// than except.
	Holds(ctx context.Context, workspaceCopy, except string) (bool, error)
	// HoldsImage reports whether a snapshot or a sandbox needs an image.
	HoldsImage(ctx context.Context, id string) (bool, error)
}

// SnapshotQuery selects rows of snapshots.
type SnapshotQuery struct {
	SnapshotFilter
	// Owner selects one key's rows, or all with AllOwners.
	Owner     string
	AllOwners bool
	// Templates also selects the snapshots that belong to versions of templates.
	Templates bool
	// Unfinished selects only the snapshots that are not visible yet.
	Unfinished bool
	// CreatedBefore, unless zero, selects only older ones.
	CreatedBefore time.Time
}

// Listing reads many rows.
type Listing interface {
	// List returns rows in the filter's order. A limit of zero means no limit.
	List(ctx context.Context, q Query) ([]Row, error)
	// CountRunning counts running sandboxes, whatever the filter's page.
	CountRunning(ctx context.Context, q Query) (int, error)
}

// Journal stores a log of each sandbox, limited to its newest entries.
type Journal interface {
	Append(ctx context.Context, id string, e LogEntry) error
	Entries(ctx context.Context, id string) ([]LogEntry, error)
}

// Store is the storage of the Service.
type Store interface {
	Rows
	WarmRows
	Listing
	Journal
	SnapshotRows
	LockSets
}

// LockSets stores the sets of lockfiles of workspaces.
type LockSets interface {
	// LockSet returns the set with a digest. The error is Conflict if there is none.
	LockSet(ctx context.Context, digest string) (*lockfile.Set, error)
}
