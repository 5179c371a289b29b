// Package sandbox owns the types of sandboxes and the rules that need no I/O: sandboxes, callers,
// limits, accesses and stored rows, and the interfaces of their storage. It starts no goroutine and
// drives nothing; internal/sandbox/lifecycle does.
package sandbox

import (
	"time"

	"github.com/crannog/crannog/internal/engine"
)

// State is the state of a sandbox in its lifecycle.
type State string

const (
	Creating State = "creating"
	Running  State = "running"
	Stopping State = "stopping"
	Stopped  State = "stopped" // ended, only its row is kept
)

// Limits are the limits of the engine and those of the server. A zero field stands for the default,
// never for unlimited.
type Limits struct {
	engine.Limits
	// CommandTimeout limits a command that sets no limit of its own.
	CommandTimeout time.Duration
	// OutputBytes limits the answer of a call that collects output.
	OutputBytes int64
}

// Sandbox is one sandbox as callers see it.
type Sandbox struct {
	ID         string // "i" and 19 of [a-z0-9]
	Name       string // given by the caller, unique among running ones, or ""
	TemplateID string // 20 of [a-z0-9]
	Template   string // the template's name in the request
	State      State
	Owner      string // KeyID of the creator, "" for a local one
	Ephemeral  bool   // ends with the process that created it

	StartedAt time.Time
	EndAt     time.Time // when it ends by itself; zero is never (local callers only)
	StoppedAt time.Time // zero while it runs
	PausedAt  time.Time // zero unless it is paused
	FilesOnly bool      // it is paused without its memory
	Needs     *Needs    // what its saved memory refers to; nil is unknown
	Reason    string    // why it stopped: killed, timeout, oom, exited, crashed, lost

	Metadata map[string]string
	Env      map[string]string
	Limits   Limits

	AccessToken  string
	TrafficToken string // "" if ports are public

	// MaskRequestHost replaces the Host header of requests to programs inside.
	MaskRequestHost string
	Workspace       string
	// Mounts are the mounts beside the workspace, including the repository to which the workspace
	// belongs. Notes explain what is not mounted, what would help, and why another engine than the
	// default one was chosen.
	Mounts  []Mount
	Volumes []VolumeMount
	Notes   []string
	// Saves lists the parts of its state that a snapshot, a pause and a copy can save.
	Saves []string
	// Containers reports whether container engines can run inside.
	Containers bool
	// Unseen says in sentences what the record of programs and files lacks.
	Unseen []string
	// Attachment is how the sandbox is connected to the egress gateway. It is empty for one without a
	// network, and for one of an earlier version.
	Attachment engine.EgressKind
	// Tracked are hidden files that git tracks, so that git's history contains them.
	Tracked Tracked
	// ImageDigest is the digest of the OCI image that it started from, or "".
	ImageDigest string
	// Tools are the directories of version managers that are mounted.
	Tools []Tool
	// Keys are files of the workspace whose contents look like keys.
	Keys     Keys
	Engine   string
	Boundary engine.Boundary
	// Enforced lists the limits that the engine enforces on this host.
	Enforced []engine.Limit

	// Access is the request, and PolicyLevel and PolicyDigest describe the policy that was compiled
	// from it.
	Access       Access
	PolicyLevel  string
	PolicyDigest string
	// Checked are the checks that the sandbox's first process made before it was ready.
	Checked []string
	// Unlinked is set if the process that held the sandbox's network attachment has died.
	Unlinked bool

	// OnEnd is the action when the sandbox's time is up.
	OnEnd OnEnd
	// Origin is the snapshot from which it was created, and At the snapshot that it was last saved
	// as or returned to; "" is the template.
	Origin, At string
	// Parent is the sandbox of which it is a copy, or "".
	Parent string
}

// OnEnd is the action when a sandbox's time is up. The zero value ends the sandbox.
type OnEnd struct {
	Pause     bool // instead of ending it
	FilesOnly bool // pause without memory
	Wake      bool // traffic resumes it
}

// CreateRequest describes the sandbox to create.
type CreateRequest struct {
	Template string // a reference: alias or ID, with an optional tag
	// Image is an OCI image to start from, in place of Template, or "".
	Image string
	Name  string // optional
	// RequestID is the caller's name for this request, or "". It is shown while the request waits
	// in the queue.
	RequestID string
	Timeout   time.Duration // until it ends by itself; zero is the default
	// Forever requests a sandbox without an end. Only local callers may do so.
	Forever   bool
	Ephemeral bool // local callers only
	Metadata  map[string]string
	Env       map[string]string
	Limits    Limits
	Engine    string          // the engine; "" lets the service choose
	AtLeast   engine.Boundary // the weakest boundary that the caller accepts, or ""
	Workspace string          // host directory, local callers only
	Mounts    []Mount         // by their sources only for local callers
	Volumes   []VolumeMount
	Programs  []string // host files and directories shown copy-on-write, local callers only
	// Containers lets root inside run container engines. The policy may forbid it.
	Containers      bool
	Tools           []string // version managers of the host whose programs are shown, or all; local callers only
	PrivatePorts    bool     // ports of programs need the traffic token
	MaskRequestHost string
	Access          Access
	OnEnd           OnEnd
	Boots           bool // boot instead of restoring the template's memory; set by the service only
	ForMemory       bool // the memory of the sandbox is saved for its template; set by the server only
}

// Filter narrows List. Zero fields match everything.
type Filter struct {
	States       []State
	Metadata     map[string]string // all must match
	TemplateID   string
	StartedAfter time.Time // inclusive
	Ascending    bool      // by start time; newest first otherwise
	Limit        int       // 1 to 100; zero is 100
	// After is the start time and ID of the last row of the previous page.
	AfterTime time.Time
	AfterID   string
}

// Page is a part of a list.
type Page struct {
	Sandboxes []Sandbox
	More      bool
	Running   int // number of running sandboxes, whatever the filter's page
}

// Metric is one sample.
type Metric struct {
	At         time.Time
	CPUCount   float64
	CPUPercent float64 // of one CPU: 150 is one and a half
	MemUsed    int64
	MemTotal   int64
	MemCache   int64
	DiskUsed   int64
	DiskTotal  int64
	PIDs       int64
}

// LogEntry is one line of a sandbox's log about its lifecycle.
type LogEntry struct {
	At      time.Time
	Level   string // debug, info, warn, error
	Message string
	Fields  map[string]string
}
