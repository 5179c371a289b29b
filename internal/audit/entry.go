// Package audit owns the record: one append-only timeline of all that people,
// keys and sandboxes did under a state directory, in which no line can be changed,
// removed, exchanged or cut off without being found out.
package audit

import (
	"context"
	"encoding/json"
	"time"
)

// Kind is the kind of an entry. The part before the dot is its group.
type Kind string

// Kinds of entries. What their data holds is in docs/reference/audit-log.md.
const (
	// What callers asked for through the API, the command line, MCP or the E2B
	// wire, and what came of it.
	Action Kind = "action"

	// The life of a sandbox.
	SandboxStarted  Kind = "sandbox.started"
	SandboxEnded    Kind = "sandbox.ended"
	SandboxPaused   Kind = "sandbox.paused"
	SandboxResumed  Kind = "sandbox.resumed"
	SandboxReplaced Kind = "sandbox.replaced" // rolled back or reset
	SandboxCopied   Kind = "sandbox.copied"
	LimitHit        Kind = "limit.hit"

	SnapshotTaken   Kind = "snapshot.taken"
	SnapshotRemoved Kind = "snapshot.removed"

	// Commands that callers had run, and cells of the code interpreter.
	CommandStarted Kind = "command.started"
	CommandEnded   Kind = "command.ended"
	// TerminalControl: somebody took, or gave up, the right to type into a
	// terminal that others may look at.
	TerminalControl Kind = "terminal.control"

	// What the engine saw inside: every program that was executed, every
	// process that ended, every file that is not as it was.
	Exec Kind = "exec"
	Exit Kind = "exit"
	File Kind = "file"
	// Gap says that something was not seen, how much, and why.
	Gap Kind = "gap"

	// Flow is one record of a sandbox's link: data is a causeway.Record.
	Flow Kind = "flow"

	ApprovalAsked   Kind = "approval.asked"
	ApprovalVoted   Kind = "approval.voted"
	ApprovalDecided Kind = "approval.decided"
	ApprovalSpent   Kind = "approval.spent"

	SecretStored  Kind = "secret.stored" // names only
	SecretRemoved Kind = "secret.removed"
	KeyMade       Kind = "key.made"
	KeyRevoked    Kind = "key.revoked"
	PolicyChanged Kind = "policy.changed"

	// Files that left a sandbox through the diff, or entered the caller's tree.
	Exported Kind = "export"
	// What was signed about such files, before the signature is handed out.
	ProvenanceSigned Kind = "provenance.signed"

	// Who signs in to the web console: a link was made, used, and what came of
	// it ended.
	ConsoleInvited   Kind = "console.invited"
	ConsoleSignedIn  Kind = "console.signed_in"
	ConsoleSignedOut Kind = "console.signed_out"

	ServerStarted Kind = "server.started"
	ServerStopped Kind = "server.stopped"
	// Truncated is the first entry after earlier ones were dropped: it says up
	// to which, and what the tree was then.
	Truncated Kind = "record.truncated"
)

// Kinds are all kinds.
var Kinds = []Kind{
	Action, SandboxStarted, SandboxEnded, SandboxPaused, SandboxResumed, SandboxReplaced, SandboxCopied, LimitHit,
	SnapshotTaken, SnapshotRemoved, CommandStarted, CommandEnded, TerminalControl, Exec, Exit, File, Gap, Flow,
	ApprovalAsked, ApprovalVoted, ApprovalDecided, ApprovalSpent, SecretStored, SecretRemoved, KeyMade, KeyRevoked,
	PolicyChanged, Exported, ProvenanceSigned, ConsoleInvited, ConsoleSignedIn, ConsoleSignedOut, ServerStarted, ServerStopped, Truncated,
}

// Entry is one line of the record. Its fields have this order on the line, and
// nothing of a line is ever changed.
type Entry struct {
	Seq  int64     `json:"seq"` // from 0, without gaps
	Time time.Time `json:"time"`
	// Prev is the hash of the line before, in hexadecimal; of the first line
	// it is empty.
	Prev    string `json:"prev"`
	Kind    Kind   `json:"kind"`
	Sandbox string `json:"sandbox,omitempty"`
	// Actor is who did it: "key:ID", "local:UID", "box" for programs inside,
	// or "server" for what happens by itself.
	Actor string          `json:"actor,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
	// Source and At are set on entries that were taken from a spool: its name
	// and the position behind what became this entry, so that a crash between
	// reading and writing neither loses nor doubles one.
	Source string `json:"source,omitempty"`
	At     uint64 `json:"at,omitempty"`
}

// Anonymous is the actor of a caller without a valid credential. Entries of earlier versions have
// another name for it, see docs/reference/audit-log.md.
const Anonymous = "anonymous"

// Draft is an entry that has no place yet.
type Draft struct {
	Time    time.Time // zero is now
	Kind    Kind
	Sandbox string
	Actor   string
	Data    any // is marshalled; nil is none
	Source  string
	At      uint64
}

// Recorder takes entries. Several processes may write one record at once.
type Recorder interface {
	// Append returns when the entries are durable. After an error none of them
	// is, and what they are of must not happen: fault code "record_unavailable".
	Append(ctx context.Context, drafts ...Draft) error
	// Note returns when the entries are accepted; they are durable within a
	// few hundredths of a second. It fails with the same fault, without
	// blocking, while the record cannot be written.
	Note(drafts ...Draft) error
	// Position is the At of the last entry of a source, or 0.
	Position(ctx context.Context, source string) (uint64, error)
	// Checkpoint is the newest signed statement of the record's size and root,
	// as a note, over all that was appended before the call.
	Checkpoint(ctx context.Context) (Checkpoint, error)
}

// Checkpoint is a signed statement of the record's size and root.
type Checkpoint struct {
	Size int64  // entries
	Root string // hash of the tree, base64
	Note string // the statement with its signature, in the form of a signed note
}
