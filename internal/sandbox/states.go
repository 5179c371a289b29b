package sandbox

import (
	"time"
)

// States of a sandbox whose memory and files are on disk, or are being written or read. A sandbox
// in one of them keeps its ID, tokens and name.
const (
	Pausing  State = "pausing"
	Paused   State = "paused"
	Resuming State = "resuming"
)

// Snapshot is the state of a sandbox at one time, from which others start.
type Snapshot struct {
	ID      string // 20 of [a-z0-9]
	Name    string // given by the caller, or ""; the newest snapshot with a name has it
	Owner   string // KeyID, "" for a local one
	Sandbox string // the sandbox that it was taken of
	// Parent is the snapshot that the sandbox came from: the one that it was made from, rolled back
	// to or that was last taken of it; "" is its start.
	Parent     string
	TemplateID string
	Template   string
	FilesOnly  bool
	CreatedAt  time.Time
	// Bytes is the size of the snapshot, OwnBytes how much disk removing it would free.
	Bytes, OwnBytes int64
	// Engine saved it. Another engine cannot restore its memory.
	Engine string
	// Format is the format of its memory; "" for files only, which any engine can start from.
	Format string
	// Needs is what its memory refers to; nil is unknown.
	Needs *Needs
}

// SnapshotRequest describes the snapshot to take.
type SnapshotRequest struct {
	Name string
	// FilesOnly leaves memory and processes out.
	FilesOnly bool
	// KeptFor is the version of a template to which it belongs, or "".
	KeptFor string
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
	// FilesOnly leaves memory and processes out: each copy boots anew.
	FilesOnly bool
}

// Fork is one copy, or the error that it failed with.
type Fork struct {
	Sandbox Sandbox
	Err     error
}
