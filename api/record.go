package api

import (
	"encoding/json"
	"time"
)

// Entry is one line of the audit log.
type Entry struct {
	Seq     int64           `json:"seq" doc:"From 0, without gaps."`
	Time    time.Time       `json:"time"`
	Prev    string          `json:"prev" doc:"SHA-256 of the line before, in hexadecimal; empty on the first."`
	Kind    string          `json:"kind"`
	Sandbox string          `json:"sandbox,omitempty"`
	Actor   string          `json:"actor,omitempty" doc:"key:ID, local:UID, box or server."`
	Data    json.RawMessage `json:"data,omitempty" doc:"By kind; see docs/reference/audit-log.md."`
	Source  string          `json:"source,omitempty"`
	At      uint64          `json:"at,omitempty"`
}

// EntryList is the answer of GET /v1/audit.
type EntryList struct {
	Entries    []Entry `json:"entries" doc:"The oldest first."`
	NextCursor string  `json:"next_cursor,omitempty" doc:"Cursor for the next page; absent on the last page."`
}

// Checkpoint is a signed tree head: the answer of GET /v1/audit/tree-head, and a part of the result
// of each command.
type Checkpoint struct {
	Size int64  `json:"size" doc:"Entries."`
	Root string `json:"root" doc:"Root hash of the tree over the entries, base64."`
	Note string `json:"note" doc:"The statement with its signature, as a signed note. Keep it on another machine: a later change of a covered entry can then be detected."`
}

// Verification is the answer of POST /v1/audit/verify.
type Verification struct {
	OK      bool   `json:"ok"`
	Entries int64  `json:"entries" doc:"Number of entries that were read."`
	First   int64  `json:"first" doc:"Number of the first entry that is still stored; earlier ones were dropped verifiably."`
	Seq     int64  `json:"seq,omitempty" doc:"The first entry that was changed."`
	Fault   string `json:"fault,omitempty" enum:",changed,missing,reordered,cut,forked,unsigned,unreadable" doc:"Kind of the damage."`
	Text    string `json:"text,omitempty" doc:"Description of the damage."`
	// The part of the log that signed tree heads cover.
	Checkpoints int   `json:"checkpoints" doc:"Number of signed tree heads that were compared and agree."`
	Uncovered   int64 `json:"uncovered,omitempty" doc:"Entries after the newest of them."`
}

// Proof shows that one entry is in the audit log of a signed tree head. It can be checked without
// the server.
type Proof struct {
	Entry      string     `json:"entry" doc:"The line, byte for byte."`
	Seq        int64      `json:"seq"`
	Hashes     []string   `json:"hashes" doc:"Inclusion proof of RFC 6962, base64."`
	Checkpoint Checkpoint `json:"checkpoint"`
	Key        string     `json:"key" doc:"Public key of the audit log, as a verifier key of signed notes."`
}

// Recording is the session recording of one command or terminal, in asciicast format.
type Recording struct {
	ID        string    `json:"id" doc:"The sandbox's commands are numbered from 1."`
	Sandbox   string    `json:"sandbox"`
	How       string    `json:"how" enum:"start,terminal,connect,exec,cell," doc:"How it was started. connect: a caller attached to a running command. cell: code for the interpreter."`
	Command   []string  `json:"command" doc:"Shortened; the audit log has more. For a cell, its language and code."`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	ExitCode  *int      `json:"exit_code,omitempty" doc:"Absent while it runs, and if the exit code is not known."`
	Error     string    `json:"error,omitempty" doc:"Code of the error that prevented it from running."`
	Lost      bool      `json:"lost,omitempty" doc:"The caller or the sandbox was gone before the end was known."`
	TTY       bool      `json:"tty"`
	Bytes     int64     `json:"bytes" doc:"Size of the recording."`
	Truncated bool      `json:"truncated" doc:"Output beyond the limit was not recorded."`
	Dropped   bool      `json:"dropped,omitempty" doc:"The recording was deleted because all recordings together were too large."`
}

// RecordingList is the answer of GET /v1/sandboxes/{id}/recordings.
type RecordingList struct {
	Recordings []Recording `json:"recordings" doc:"The oldest first."`
}

// RetainedRecordings are the session recordings of a sandbox that has ended.
type RetainedRecordings struct {
	// ID is the sandbox's, or "" if nothing was recorded.
	ID        string    `json:"id" doc:"ID of the sandbox; empty if nothing was recorded and retained."`
	Workspace string    `json:"workspace,omitempty" doc:"Host directory of its workspace."`
	TakenAt   time.Time `json:"taken_at,omitzero"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// RetainedRecordingList is the answer of GET /v1/recordings.
type RetainedRecordingList struct {
	Recordings []RetainedRecordings `json:"recordings" doc:"The newest first."`
}
