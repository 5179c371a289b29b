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

// Snapshot is the state of a sandbox at one time, from which other sandboxes start.
type Snapshot struct {
	ID      string // 20 of [a-z0-9]
	Name    string // given by the caller, or ""; the newest snapshot with a name has it
	Owner   string // KeyID, "" for a local one
	Sandbox string // the sandbox that it was taken of
	// Parent is the snapshot that the sandbox was created from, rolled back to, or last saved as,
	// whichever was last; "" is its initial state.
	Parent     string
	TemplateID string
	Template   string
	FilesOnly  bool
	CreatedAt  time.Time
	// Bytes is the size of the snapshot, and OwnBytes how much disk its removal would free.
	Bytes, OwnBytes int64
	// Engine is the engine that saved it. Another engine cannot restore its memory.
	Engine string
	// Format is the format of its memory. It is "" for files only, from which any engine can start.
	Format string
	// Needs are the host files to which its memory refers; nil is unknown.
	Needs *Needs
}

// SnapshotRequest describes the snapshot to take.
type SnapshotRequest struct {
	Name string
	// FilesOnly excludes memory and processes.
	FilesOnly bool
	// KeptFor is the version of a template to which it belongs, or "".
	KeptFor string
}

// SnapshotFilter narrows Snapshots. Zero fields match everything.
type SnapshotFilter struct {
	Sandbox string
	Name    string
	Limit   int // 1 to 100; zero is 100
	// After is the creation time and ID of the last row of the previous page; pages are newest
	// first.
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
	// Timeout is the lifetime of each copy; zero is the default.
	Timeout   time.Duration
	Forever   bool // copies without an end; local callers only
	Ephemeral bool // local callers only
	// FilesOnly excludes memory and processes, so that each copy boots again.
	FilesOnly bool
}

// Fork is one copy, or the error of its creation.
type Fork struct {
	Sandbox Sandbox
	Err     error
}

// States lists the states of a sandbox, also of a warm one.
func States() []State {
	return []State{Creating, Running, Stopping, Stopped, Pausing, Paused, Resuming, Waiting}
}
