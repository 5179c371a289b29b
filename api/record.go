package api

import (
	"encoding/json"
	"time"
)

// Entry is one line of the record.
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

// EntryList is the answer of GET /v1/record.
type EntryList struct {
	Entries    []Entry `json:"entries" doc:"The oldest first."`
	NextCursor string  `json:"next_cursor,omitempty" doc:"Hand it back as cursor for the next page; absent on the last."`
}

// Checkpoint is the answer of GET /v1/record/checkpoint, and comes with the
// result of each command.
type Checkpoint struct {
	Size int64  `json:"size" doc:"Entries."`
	Root string `json:"root" doc:"Hash of the tree over them, base64."`
	Note string `json:"note" doc:"The statement with its signature, as a signed note. Keep it elsewhere: what it covers cannot be changed any more without being found out."`
}

// Verification is the answer of POST /v1/record/verify.
type Verification struct {
	OK      bool   `json:"ok"`
	Entries int64  `json:"entries" doc:"How many were read."`
	First   int64  `json:"first" doc:"Number of the first that is kept; earlier ones were dropped provably."`
	Seq     int64  `json:"seq,omitempty" doc:"The first entry that is not as it was written."`
	Fault   string `json:"fault,omitempty" enum:",changed,missing,reordered,cut,forked,unsigned,unreadable" doc:"What is wrong with it."`
	Text    string `json:"text,omitempty" doc:"The same in a sentence."`
	// How far what is signed reaches.
	Checkpoints int   `json:"checkpoints" doc:"How many checkpoints were compared, and agreed."`
	Uncovered   int64 `json:"uncovered,omitempty" doc:"Entries that came after the newest of them."`
}

// Proof shows that one entry is in the record that a checkpoint is of. It is
// checked without the server.
type Proof struct {
	Entry      string     `json:"entry" doc:"The line, byte for byte."`
	Seq        int64      `json:"seq"`
	Hashes     []string   `json:"hashes" doc:"Inclusion proof of RFC 6962, base64."`
	Checkpoint Checkpoint `json:"checkpoint"`
	Key        string     `json:"key" doc:"The verifier key of the record, in the form of a signed note's."`
}

// Recording is what one command or terminal printed, kept as asciicast.
type Recording struct {
	ID        string    `json:"id" doc:"The sandbox's commands are numbered from 1."`
	Sandbox   string    `json:"sandbox"`
	How       string    `json:"how" enum:"start,terminal,connect,exec,cell," doc:"Over what it was run. connect: a caller followed what ran already. cell: code for the interpreter."`
	Command   []string  `json:"command" doc:"Shortened; the record has more of it. Of a cell its language and code."`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	ExitCode  *int      `json:"exit_code,omitempty" doc:"Absent while it runs, and where the exit code is not known."`
	Error     string    `json:"error,omitempty" doc:"Code of why it did not run."`
	Lost      bool      `json:"lost,omitempty" doc:"The caller or the sandbox went away before the end was heard."`
	TTY       bool      `json:"tty"`
	Bytes     int64     `json:"bytes" doc:"Size of the recording."`
	Truncated bool      `json:"truncated" doc:"Output beyond the bound was not kept."`
	Dropped   bool      `json:"dropped,omitempty" doc:"What it printed is not kept any more: all recordings together took too much."`
}

// RecordingList is the answer of GET /v1/sandboxes/{id}/recordings.
type RecordingList struct {
	Recordings []Recording `json:"recordings" doc:"The oldest first."`
}

// RetainedRecordings are the session recordings of a sandbox that has ended.
type RetainedRecordings struct {
	// ID is the sandbox's, or "" if nothing was recorded.
	ID        string    `json:"id" doc:"The sandbox's. Empty if nothing was recorded, and nothing is kept."`
	Workspace string    `json:"workspace,omitempty" doc:"The host directory that it showed."`
	TakenAt   time.Time `json:"taken_at,omitzero"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// RetainedRecordingList is the answer of GET /v1/recordings.
type RetainedRecordingList struct {
	Recordings []RetainedRecordings `json:"recordings" doc:"The newest first."`
}
