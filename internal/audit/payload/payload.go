// Package payload owns the data of the audit entries that the server and its frontends write.
// Package ingest owns the data of entries from engines and the egress gateway.
package payload

// Action is the data of an action entry: a request of a caller, and its outcome. Reads are not
// actions.
type Action struct {
	// Do is the requested action: create, remove, forget, prune, timeout, extend, access, pause,
	// resume, fork, rollback, reset, snapshot, snapshot.remove; or the method and path of an HTTP
	// request that was rejected before it reached an action.
	Do string `json:"do"`
	// Ref is the name or ID that the caller used, if it is not the sandbox's ID.
	Ref string `json:"ref,omitempty"`
	// Outcome is ok, or the code of the fault.
	Outcome string `json:"outcome"`
	TookMS  int64  `json:"took_ms,omitempty"`
	// Count, if set, is the number of rejected requests of the last minute that have no entries of
	// their own, so that callers without credentials cannot fill the disk.
	Count int64 `json:"count,omitempty"`
}

// FromReading is the origin of a temporary copy that the server creates to read the files of a
// snapshot.
const FromReading = "reading"

// Started is the data of sandbox.started: a sandbox is ready.
type Started struct {
	Name       string `json:"name,omitempty"`
	Owner      string `json:"owner,omitempty"` // key; absent for local callers
	Template   string `json:"template"`
	TemplateID string `json:"template_id"`
	// From is engine, pool for a warm sandbox, or FromReading.
	From     string `json:"from"`
	Origin   string `json:"origin,omitempty"` // snapshot that it started from
	Parent   string `json:"parent,omitempty"` // sandbox that it is a copy of
	Engine   string `json:"engine"`
	Boundary string `json:"boundary"`
	// Containers is set if container engines can run inside.
	Containers bool     `json:"containers,omitempty"`
	Enforced   []string `json:"enforced,omitempty"` // limits that are enforced on this host
	Limits     Limits   `json:"limits"`
	// Workspace is the host directory that is visible inside, copy-on-write.
	Workspace string `json:"workspace,omitempty"`
	Level     string `json:"level"`
	Policy    string `json:"policy"` // digest of the policy
	Net       string `json:"net"`
	// Attachment is how the sandbox is connected to the egress gateway, and NotCarried lists what
	// programs cannot send over it.
	Attachment string   `json:"attachment,omitempty"`
	NotCarried []string `json:"not_carried,omitempty"`
	// Checked lists the readiness probes that passed.
	Checked   []string `json:"checked,omitempty"`
	Ephemeral bool     `json:"ephemeral,omitempty"`
	EndAt     string   `json:"end_at,omitempty"` // RFC 3339; absent means never
	// Watched reports whether the engine records what programs do.
	Watched bool `json:"watched"`
	// Unseen says in sentences what the record of programs and files lacks.
	Unseen []string `json:"unseen,omitempty"`
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
	LastMS int64  `json:"last_ms"` // lifetime of the sandbox
}

// Paused is the data of sandbox.paused.
type Paused struct {
	FilesOnly bool   `json:"files_only,omitempty"`
	Sum       string `json:"sum,omitempty"`    // digest of the saved state
	Bytes     int64  `json:"bytes,omitempty"`  // size of the saved state
	Reason    string `json:"reason,omitempty"` // set if a resume was interrupted, and its state repaired
}

// Resumed is the data of sandbox.resumed.
type Resumed struct {
	Run       int64  `json:"run"`                  // number of the sandbox's current instance
	EndAt     string `json:"end_at,omitempty"`     // RFC 3339; absent means never
	FilesOnly bool   `json:"files_only,omitempty"` // booted without its memory
	Reason    string `json:"reason,omitempty"`     // set if a pause was interrupted, and its state repaired
}

// Replaced is the data of sandbox.replaced.
type Replaced struct {
	Run      int64  `json:"run"`
	Snapshot string `json:"snapshot,omitempty"` // absent means the sandbox's start
}

// Copied is the data of sandbox.copied. Each copy has a sandbox.started too.
type Copied struct {
	Copies    []string `json:"copies"` // IDs of the copies
	Asked     int      `json:"asked"`  // number of requested copies
	FilesOnly bool     `json:"files_only,omitempty"`
}

// Limit is the data of limit.hit.
type Limit struct {
	Limit string `json:"limit"` // memory
	Most  int64  `json:"most"`  // value of the limit
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
	Old      string `json:"old"` // digest of the policy
	New      string `json:"new"`
	OldLevel string `json:"old_level"`
	NewLevel string `json:"new_level"`
	Net      string `json:"net"`
	// OldDocument is the replaced policy as one document, which is stored nowhere else. It is
	// absent if it is larger than MaxPolicy or cannot be read.
	OldDocument string `json:"old_document,omitempty"`
}

// MaxPolicy limits the bytes of a policy in an entry.
const MaxPolicy = 64 << 10

// Secret is the data of secret.stored and secret.removed.
type Secret struct {
	Name  string `json:"name"`
	Owner string `json:"owner,omitempty"` // key; absent for local callers
	// Do is stored, rotated or removed, or resealed for all secrets at once.
	Do string `json:"do"`
}

// Key is the data of key.made and key.revoked.
type Key struct {
	ID    string `json:"id"`
	Name  string `json:"name,omitempty"`
	Opens string `json:"opens,omitempty"` // absent in entries of older versions
}

// Approval is the data of approval.asked, .voted, .decided and .spent.
type Approval struct {
	ID      string            `json:"id"`
	Kind    string            `json:"kind"`
	Rule    string            `json:"rule"`
	Policy  string            `json:"policy"`
	Digest  string            `json:"digest"` // digest of all facts that a grant is bound to
	State   string            `json:"state,omitempty"`
	Facts   map[string]string `json:"facts,omitempty"` // in approval.asked
	Quorum  int               `json:"quorum,omitempty"`
	Granted *bool             `json:"granted,omitempty"` // in approval.voted
	Reason  string            `json:"reason,omitempty"`
	// Amendment is the rule that the grant adds to the policy.
	Amendment string `json:"amendment,omitempty"`
}

// Server is the data of server.started and server.stopped.
type Server struct {
	Version string `json:"version"`
	Engine  string `json:"engine"`
	PID     int    `json:"pid"`
}
