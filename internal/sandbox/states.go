package sandbox

import (
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
