// Package audit owns the audit log: one append-only sequence of all actions of users, keys and
// sandboxes under a state directory. Changed, removed, replaced or truncated lines are detected.
package audit

import (
	"context"
	"encoding/json"
	"time"
)

// Kind is the kind of an entry. The part before the dot is its group.
type Kind string

// Kinds of entries. docs/reference/audit-log.md describes the data of each.
const (
	// Requests of callers through the API, the command line, MCP or the E2B API, with their
	// outcome.
	Action Kind = "action"

	// The life cycle of a sandbox.
	SandboxStarted  Kind = "sandbox.started"
	SandboxEnded    Kind = "sandbox.ended"
	SandboxPaused   Kind = "sandbox.paused"
	SandboxResumed  Kind = "sandbox.resumed"
	SandboxReplaced Kind = "sandbox.replaced" // rolled back or reset
	SandboxCopied   Kind = "sandbox.copied"
	LimitHit        Kind = "limit.hit"

	SnapshotTaken   Kind = "snapshot.taken"
	SnapshotRemoved Kind = "snapshot.removed"

	// Commands that callers ran, and cells of the code interpreter.
	CommandStarted Kind = "command.started"
	CommandEnded   Kind = "command.ended"
	// TerminalControl means that a user took or released control of a terminal's input, which
	// others may watch.
	TerminalControl Kind = "terminal.control"

	// Observations of the engine inside: each program that was executed, each process that ended,
	// each file that changed.
	Exec Kind = "exec"
	Exit Kind = "exit"
	File Kind = "file"
	// Gap means that events were not observed. Its data has their number and the reason.
	Gap Kind = "gap"

	// Flow is one flow of a sandbox's network attachment. Its data is an egress.Record.
	Flow Kind = "flow"

	ApprovalAsked   Kind = "approval.asked"
	ApprovalVoted   Kind = "approval.voted"
	ApprovalDecided Kind = "approval.decided"
	ApprovalSpent   Kind = "approval.spent"

	SecretStored  Kind = "secret.stored" // names of secrets only
	SecretRemoved Kind = "secret.removed"
	KeyMade       Kind = "key.made"
	KeyRevoked    Kind = "key.revoked"
	PolicyChanged Kind = "policy.changed"

	// Files that left a sandbox through a diff or an export, or were applied to the caller's
	// directory.
	Exported Kind = "export"
	// A statement about such files was signed. The entry is written before the statement is signed.
	ProvenanceSigned Kind = "provenance.signed"

	// Sign-in to the web console: a link was created or used, and its session ended.
	ConsoleInvited   Kind = "console.invited"
	ConsoleSignedIn  Kind = "console.signed_in"
	ConsoleSignedOut Kind = "console.signed_out"

	ServerStarted Kind = "server.started"
	ServerStopped Kind = "server.stopped"
	// Truncated is the first entry after older entries were dropped. It has the number of the first
	// remaining entry, and the tree at that time.
	Truncated Kind = "record.truncated"
)

// Kinds lists all kinds.
var Kinds = []Kind{
	Action, SandboxStarted, SandboxEnded, SandboxPaused, SandboxResumed, SandboxReplaced, SandboxCopied, LimitHit,
	SnapshotTaken, SnapshotRemoved, CommandStarted, CommandEnded, TerminalControl, Exec, Exit, File, Gap, Flow,
	ApprovalAsked, ApprovalVoted, ApprovalDecided, ApprovalSpent, SecretStored, SecretRemoved, KeyMade, KeyRevoked,
	PolicyChanged, Exported, ProvenanceSigned, ConsoleInvited, ConsoleSignedIn, ConsoleSignedOut, ServerStarted, ServerStopped, Truncated,
}

// Entry is one line of the audit log. The line has the fields in this order. A written line never
// changes.
type Entry struct {
	Seq  int64     `json:"seq"` // from 0, without gaps
	Time time.Time `json:"time"`
	// Prev is the hash of the previous line, in hexadecimal. The first line has none.
	Prev    string `json:"prev"`
	Kind    Kind   `json:"kind"`
	Sandbox string `json:"sandbox,omitempty"`
	// Actor is who caused the entry: "key:ID", "local:UID", "box" for programs inside, or "server"
	// for the server itself.
	Actor string          `json:"actor,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
	// Source and At are set on entries that an ingester read from a file. They are the name of the
	// source and the position after the line. After a crash they prevent lost and duplicate
	// entries.
	Source string `json:"source,omitempty"`
	At     uint64 `json:"at,omitempty"`
}

// Anonymous is the actor of a caller without a valid credential. Entries of earlier versions have
// another name for it, see docs/reference/audit-log.md.
const Anonymous = "anonymous"

// Draft is an entry without a position.
type Draft struct {
	Time    time.Time // zero means now
	Kind    Kind
	Sandbox string
	Actor   string
	Data    any // marshalled as JSON; nil means no data
	Source  string
	At      uint64
}

// Recorder writes entries. Several processes may write to one audit log at once.
type Recorder interface {
	// Append returns when the entries are durable. If it returns an error, none of them is written,
	// and the action that they describe must not happen. The fault code is "record_unavailable".
	Append(ctx context.Context, drafts ...Draft) error
	// Note returns when the entries are queued. They are durable within a few hundredths of a
	// second. It does not block. It fails with the same fault while the log cannot be written.
	Note(drafts ...Draft) error
	// Position returns the At of the last entry of a source, or 0.
	Position(ctx context.Context, source string) (uint64, error)
	// Checkpoint returns the newest signed tree head. It covers all entries that were appended
	// before the call.
	Checkpoint(ctx context.Context) (Checkpoint, error)
}

// Checkpoint is a signed tree head: a signed statement of the log's size and root hash.
type Checkpoint struct {
	Size int64  // number of entries
	Root string // root hash of the tree, base64
	Note string // the statement with its signature, as a signed note
}
