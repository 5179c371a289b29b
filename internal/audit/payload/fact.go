// Package payload owns the data of the entries that rules, doors and assembly
// write into the record. What engines and the causeway see is package spool's.
package payload

// Action is the data of an action entry: what somebody asked for through a
// door, and what came of it. Reads are no actions.
type Action struct {
	// Do is what was asked for: create, remove, forget, prune, timeout, extend,
	// access, pause, resume, fork, rollback, reset, snapshot, snapshot.remove;
	// or, of a request that was refused at the door, its method and path.
	Do string `json:"do"`
	// Ref is how the caller named the object, where that is not the sandbox's ID.
	Ref string `json:"ref,omitempty"`
	// Outcome is ok, or the code of the fault.
	Outcome string `json:"outcome"`
	TookMS  int64  `json:"took_ms,omitempty"`
	// Count, if set, is how many refused requests of the last minute have no
	// entry of their own, so that strangers cannot fill the disk.
	Count int64 `json:"count,omitempty"`
}

// FromReading is the origin of a copy that the server makes for itself, to read
// the files of a saved state.
const FromReading = "reading"

// Started is the data of sandbox.started: a sandbox is ready.
type Started struct {
	Name       string `json:"name,omitempty"`
	Owner      string `json:"owner,omitempty"` // key, or absent for local callers
	Template   string `json:"template"`
	TemplateID string `json:"template_id"`
	// From is engine, pool for one that had waited for its caller, or
	// FromReading.
	From     string   `json:"from"`
	Origin   string   `json:"origin,omitempty"` // snapshot that it was made of
	Parent   string   `json:"parent,omitempty"` // sandbox that it is a copy of
	Engine   string   `json:"engine"`
	Boundary string   `json:"boundary"`
	Enforced []string `json:"enforced,omitempty"` // limits that hold on this host
	Limits   Limits   `json:"limits"`
	// Workspace is the host directory that is shown inside, copy-on-write.
	Workspace string `json:"workspace,omitempty"`
	Level     string `json:"level"`
	Policy    string `json:"policy"` // digest
	Net       string `json:"net"`
	// Checked is what the sandbox's first process tried before it was ready.
	Checked   []string `json:"checked,omitempty"`
	Ephemeral bool     `json:"ephemeral,omitempty"`
	EndAt     string   `json:"end_at,omitempty"` // RFC 3339; absent is never
	// Watched says that the engine writes down what programs do.
	Watched bool `json:"watched"`
}

// Limits are a sandbox's limits.
type Limits struct {
	MemoryBytes int64 `json:"memory_bytes"`
	MilliCPU    int64 `json:"milli_cpu"`
	PIDs        int64 `json:"pids"`
	DiskBytes   int64 `json:"disk_bytes"`
	DiskInodes  int64 `json:"disk_inodes,omitempty"`
	ShmBytes    int64 `json:"shm_bytes,omitempty"`
}

// Ended is the data of sandbox.ended.
type Ended struct {
	// Reason is killed, timeout, oom, exited, crashed, lost or pause_failed.
	Reason string `json:"reason"`
	LastMS int64  `json:"last_ms"` // since it was created
}

// Paused is the data of sandbox.paused.
type Paused struct {
	FilesOnly bool   `json:"files_only,omitempty"`
	Sum       string `json:"sum,omitempty"` // of what was written down
	Bytes     int64  `json:"bytes,omitempty"`
	Reason    string `json:"reason,omitempty"` // mended: a resumption was cut short
}

// Resumed is the data of sandbox.resumed.
type Resumed struct {
	Run       int64  `json:"run"`                  // counts the sandbox's machines
	EndAt     string `json:"end_at,omitempty"`     // RFC 3339; absent is never
	FilesOnly bool   `json:"files_only,omitempty"` // it booted anew, without memory
	Reason    string `json:"reason,omitempty"`     // mended: a pause was cut short
}

// Replaced is the data of sandbox.replaced.
type Replaced struct {
	Run      int64  `json:"run"`
	Snapshot string `json:"snapshot,omitempty"` // absent is its start
}

// Copied is the data of sandbox.copied; each copy has a sandbox.started too.
type Copied struct {
	Copies []string `json:"copies"` // sandboxes
	Asked  int      `json:"asked"`
}

// Limit is the data of limit.hit.
type Limit struct {
	Limit string `json:"limit"` // memory
	Most  int64  `json:"most"`
}

// Snapshot is the data of snapshot.taken and snapshot.removed.
type Snapshot struct {
	ID        string `json:"id"`
	Name      string `json:"name,omitempty"`
	FilesOnly bool   `json:"files_only,omitempty"`
	Sum       string `json:"sum,omitempty"`
	Bytes     int64  `json:"bytes,omitempty"`
}

// Policy is the data of policy.changed.
type Policy struct {
	Old      string `json:"old"` // digest
	New      string `json:"new"`
	OldLevel string `json:"old_level"`
	NewLevel string `json:"new_level"`
	Net      string `json:"net"`
	// OldDocument is the replaced policy as one document, which nothing else
	// keeps; absent if it is larger than MaxPolicy or cannot be read any more.
	OldDocument string `json:"old_document,omitempty"`
}

// MaxPolicy bounds a policy in an entry.
const MaxPolicy = 64 << 10

// Secret is the data of secret.stored and secret.removed.
type Secret struct {
	Name  string `json:"name"`
	Owner string `json:"owner,omitempty"` // key, or absent for local callers
	// Do is stored, rotated, removed or resealed, which is of all secrets.
	Do string `json:"do"`
}

// Key is the data of key.made and key.revoked.
type Key struct {
	ID    string `json:"id"`
	Name  string `json:"name,omitempty"`
	Opens string `json:"opens,omitempty"` // absent in entries before there was a choice
}

// Approval is the data of approval.asked, .voted, .decided and .spent.
type Approval struct {
	ID      string            `json:"id"`
	Kind    string            `json:"kind"`
	Rule    string            `json:"rule"`
	Policy  string            `json:"policy"`
	Digest  string            `json:"digest"` // of all that an answer is bound to
	State   string            `json:"state,omitempty"`
	Facts   map[string]string `json:"facts,omitempty"` // of approval.asked
	Quorum  int               `json:"quorum,omitempty"`
	Granted *bool             `json:"granted,omitempty"` // of approval.voted
	Reason  string            `json:"reason,omitempty"`
	// Amendment is what the grant is to add to the policy.
	Amendment string `json:"amendment,omitempty"`
}

// Server is the data of server.started and server.stopped.
type Server struct {
	Version string `json:"version"`
	Engine  string `json:"engine"`
	PID     int    `json:"pid"`
}
