package sandbox

import (
	"context"
	"time"
)

// States of a sandbox whose memory and files are on disk, or on their way
// there or back. A sandbox in one of them keeps its ID, tokens and name.
const (
	Pausing  State = "pausing"
	Paused   State = "paused"
	Resuming State = "resuming"
)

// Snapshot is the state of a sandbox at one time, from which others start.
type Snapshot struct {
	ID      string // 20 of [a-z0-9]
	Name    string // given by the caller, or ""; the newest of a name has it
	Owner   string // KeyID, "" for a local one
	Sandbox string // of which it was taken
	// Parent is the snapshot that the sandbox came from: the one that it was
	// made of, rolled back to or that was last taken of it; "" is its start.
	Parent     string
	TemplateID string
	Template   string
	FilesOnly  bool
	CreatedAt  time.Time
	// Bytes is how much was written down, OwnBytes how much of the disk would
	// be free without this one.
	Bytes, OwnBytes int64
	// Engine made it. Its memory is of no use to another engine.
	Engine string
	// Format is what can go on from it; "" for files only, which anything can.
	Format string
	// Needs is what its memory refers to; nil is not known.
	Needs *Needs
}

// SnapshotRequest describes the snapshot to take.
type SnapshotRequest struct {
	Name string
	// FilesOnly leaves memory and processes out.
	FilesOnly bool
}

// SnapshotFilter narrows Snapshots. Zero fields match everything.
type SnapshotFilter struct {
	Sandbox string
	Name    string
	Limit   int // 1 to 100; zero is 100
	// After is the creation time and ID of the last row of the page before;
	// pages are newest first.
	AfterTime time.Time
	AfterID   string
}

// SnapshotPage is a part of a list.
type SnapshotPage struct {
	Snapshots []Snapshot
	More      bool
}

// ForkRequest describes the copies to make.
type ForkRequest struct {
	Count int // 1 to 100
	// Timeout of each copy; zero is the default.
	Timeout   time.Duration
	Forever   bool // copies without an end; local callers only
	Ephemeral bool // local callers only
}

// Fork is one copy, or why there is none.
type Fork struct {
	Sandbox Sandbox
	Err     error
}

// States is what surfaces use of the sandboxes' saved states.
type States interface {
	// Pause writes a running sandbox down and ends its processes. With
	// filesOnly it boots anew when it is resumed. One that is paused already
	// is a Conflict with the code "sandbox_paused".
	Pause(ctx context.Context, who Principal, ref string, filesOnly bool) (Sandbox, error)
	// Resume lets a paused sandbox go on for d, zero being the time that it
	// was created with, and reports whether it was paused; a running one stays
	// as it is, and its end is not made earlier. A pause or resumption
	// under way is waited for.
	Resume(ctx context.Context, who Principal, ref string, d time.Duration) (Sandbox, bool, error)
	// ResumeFiles is Resume that leaves memory and processes out, also where
	// they were kept: the sandbox boots anew, with its files.
	ResumeFiles(ctx context.Context, who Principal, ref string, d time.Duration) (Sandbox, bool, error)
	// Fork copies a running sandbox. The error is of what all copies have in
	// common; each has its own besides.
	Fork(ctx context.Context, who Principal, ref string, req ForkRequest) ([]Fork, error)
	// Rollback puts a running or paused sandbox back to one of the snapshots
	// that the caller may use, in place.
	Rollback(ctx context.Context, who Principal, ref, snapshot string) (Sandbox, error)
	// Reset puts it back to its start: its template or the snapshot that it
	// was made of.
	Reset(ctx context.Context, who Principal, ref string) (Sandbox, error)
}

// Snapshots is what surfaces use of snapshots. A snapshot's ID or name is a
// template reference too, for Create.
type Snapshots interface {
	// Snapshot takes one of a running sandbox, which pauses briefly.
	Snapshot(ctx context.Context, who Principal, ref string, req SnapshotRequest) (Snapshot, error)
	Snapshots(ctx context.Context, who Principal, f SnapshotFilter) (SnapshotPage, error)
	// FindSnapshot finds one by ID or name; another key's is NotFound with the
	// code "snapshot_not_found".
	FindSnapshot(ctx context.Context, who Principal, ref string) (Snapshot, error)
	// RemoveSnapshot drops one. Sandboxes and snapshots that came from it stay.
	RemoveSnapshot(ctx context.Context, who Principal, ref string) error
}

// Waker is what the data-plane proxy uses beside Traffic.
type Waker interface {
	// Asleep returns a sandbox that does not run now and that resumes on
	// traffic: one that is paused, or on its way there or back. The proxy
	// compares its tokens first, so that not everybody can wake it.
	Asleep(ctx context.Context, id string) (Sandbox, bool)
	// AsleepAll calls yield for each of them until it returns false.
	AsleepAll(ctx context.Context, yield func(Sandbox) bool)
	// Wake resumes a paused sandbox that resumes on traffic, and waits for it.
	// Any other that does not run is NotFound.
	Wake(ctx context.Context, id string) (Sandbox, error)
}
