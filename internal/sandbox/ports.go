package sandbox

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/filetree/hosttools"
)

// Template is what a sandbox starts from, as a reference resolved.
type Template struct {
	ID   string // 20 of [a-z0-9], the same on every start
	Name string // how people call it
	// Image is what its files are.
	Image engine.Image
	// DefaultUser runs what names no user; "" is "user". DefaultDir is where
	// it runs; "" is that user's home.
	DefaultUser string
	DefaultDir  string
	// Env is set for every process, below what the caller sets.
	Env map[string]string
	// ImageDigest is the digest of the OCI image that it is; "" is a view of the host.
	ImageDigest string
	// Revision identifies the programs in the template. Saved memory
	// refers to them, and can be restored with no others.
	Revision string
	// Tools are directories of the host's version managers that it shows besides.
	Tools []hosttools.Tree
	// Origin is the snapshot that takes the template's place, or nil.
	Origin *Stored
	// Older is by how many steps the restored guest knows less than guestKnows.
	Older int
}

// Templates finds templates.
type Templates interface {
	// Resolve finds a template by its name or ID. What does not exist is
	// TemplateUnknown, a tag that does not exist is TagUnknown.
	Resolve(ctx context.Context, ref Reference) (Template, error)
}

// ImageTemplates finds OCI images as templates.
type ImageTemplates interface {
	// ResolveImage finds an image by its reference, such as python:3.12-slim. One that is
	// not on this machine is pulled if mayPull is set, and is NotFound otherwise.
	ResolveImage(ctx context.Context, ref string, mayPull bool) (Template, error)
}

// Rows keeps one row per sandbox. Several processes may use the same rows at once,
// so every change names the state that it expects to find.
type Rows interface {
	// Insert adds a row in the state Creating. If max sandboxes are live
	// already that is Exhausted; if the owner has a live one of that name,
	// Exists. Both are decided together with the insertion.
	Insert(ctx context.Context, r Row, max int) error
	// Get finds a row by its ID, or is NotFound.
	Get(ctx context.Context, id string) (Row, error)
	// Find returns rows that a name or ID prefix may mean, at most two of
	// each rank, best rank first: live by name, stopped by name, ID prefix.
	Find(ctx context.Context, ref string, who Principal) ([]Row, error)
	// Move changes the state and reports whether the row was in one of the
	// states that it may come from.
	Move(ctx context.Context, id string, m Move) (bool, error)
	// SetEnd changes the end of a running sandbox and reports whether it
	// did. With onlyLater an earlier end than the row's changes nothing.
	SetEnd(ctx context.Context, id string, end time.Time, onlyLater bool) (bool, error)
	// SetAccess changes what a sandbox may reach.
	SetAccess(ctx context.Context, id string, a Access, level, digest string) error
	// Delete drops the row and its log. An unknown ID succeeds.
	Delete(ctx context.Context, id string) error
}

// Move is a change of state.
type Move struct {
	From   []State
	To     State
	Reason string    // kept unless the row has one already
	At     time.Time // when it stopped, for Stopped
	// EndedBy, unless zero, makes the move only if the row's end is not
	// later: another process may have extended it.
	EndedBy time.Time
	// By, unless zero, is who does what the new state says.
	By Process
	// WasBy and Run, unless zero, make the move only of a row that is at that
	// run, and that that process acts on.
	WasBy Process
	Run   int64
	// Next counts a new run.
	Next bool
	// MaxLive and MaxPaused, unless zero, make the move only if fewer rows are
	// live or paused; otherwise it is Exhausted.
	MaxLive, MaxPaused int
	// Change, unless nil, is what else is kept.
	Change *Change
}

// Change is what a move keeps beside the state. Nil fields stay as they are.
type Change struct {
	PausedAt *time.Time
	EndAt    *time.Time
	Saved    *Saved
	Pending  *string
	At       *string // the snapshot that it came from last
	Checked  []string
	Base     *Base
}

// Query selects rows.
type Query struct {
	Filter
	// Owner limits to one key's rows; AllOwners lifts that.
	Owner     string
	AllOwners bool
	// StoppedBefore, unless zero, selects only what stopped before it.
	StoppedBefore time.Time
	// Ephemeral selects only those that end with their process.
	Ephemeral bool
	// Skip leaves out that many rows from the front.
	Skip int
}

// SnapshotRows keeps one row per snapshot.
type SnapshotRows interface {
	// InsertSnapshot adds a row that no query shows yet, except by its ID.
	InsertSnapshot(ctx context.Context, s Stored) error
	// KeepSnapshot shows it, gives it its name, which no other of its owner
	// has from then on, and notes that its sandbox came from it last.
	KeepSnapshot(ctx context.Context, id, sum string, bytes int64, needs *Needs) error
	// GetSnapshot finds a row by its ID, also one that is not shown yet, or is
	// NotFound.
	GetSnapshot(ctx context.Context, id string) (Stored, error)
	// ListSnapshots returns rows newest first. A limit of zero is none.
	ListSnapshots(ctx context.Context, q SnapshotQuery) ([]Stored, error)
	// DeleteSnapshot drops the row. What came from it comes from its parent
	// then. An unknown ID succeeds.
	DeleteSnapshot(ctx context.Context, id string) error
	// Holds reports whether anything but a sandbox needs the copy of a
	// workspace that was made for one.
	Holds(ctx context.Context, workspaceCopy, but string) (bool, error)
	// HoldsImage reports whether a snapshot or a sandbox needs an image.
	HoldsImage(ctx context.Context, id string) (bool, error)
}

// SnapshotQuery selects rows of snapshots.
type SnapshotQuery struct {
	SnapshotFilter
	// Owner limits to one key's rows; AllOwners lifts that.
	Owner     string
	AllOwners bool
	// Unfinished selects instead the snapshots that are not shown yet.
	Unfinished bool
	// CreatedBefore, unless zero, selects only older ones.
	CreatedBefore time.Time
}

// Listing reads many rows.
type Listing interface {
	// List returns rows in the filter's order. A limit of zero is none.
	List(ctx context.Context, q Query) ([]Row, error)
	// CountRunning counts running sandboxes, whatever the filter's page.
	CountRunning(ctx context.Context, q Query) (int, error)
}

// Journal keeps what happened to each sandbox, the newest entries of each.
type Journal interface {
	Append(ctx context.Context, id string, e LogEntry) error
	Entries(ctx context.Context, id string) ([]LogEntry, error)
}

// Store is all that the Service keeps.
type Store interface {
	Rows
	Claims
	Listing
	Journal
	SnapshotRows
}
