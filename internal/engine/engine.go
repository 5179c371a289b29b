// Package engine owns the contract between a sandbox and what isolates it:
// the interface, its vocabulary and the limits. It knows no engine by name.
package engine

import (
	"context"
	"net"
	"os"
	"time"
)

// Engine isolates sandboxes. All methods are safe for concurrent use and take IDs,
// so that a sandbox outlives the process that made it.
type Engine interface {
	// Info describes the engine on this host. It does no I/O.
	Info() Info

	// Probe checks what the engine needs of this host and returns a finding for
	// each check. One with ResultFail means that no sandbox can run here. It starts
	// no sandbox and leaves nothing behind.
	Probe(ctx context.Context) []Finding

	// Create returns when the sandbox is booted and its guest answers on
	// guestboot.Port. After an error nothing of it is left. A taken ID is a fault
	// of kind Exists.
	Create(ctx context.Context, spec Spec) error

	// Dial opens a stream to a TCP port on the sandbox's loopback. A port without a
	// listener is a fault of kind Unavailable with the code "port_closed"; an unknown
	// or stopped sandbox is NotFound.
	Dial(ctx context.Context, id string, port int) (net.Conn, error)

	// Wait returns when the sandbox has stopped, for whatever reason. It may
	// be called at any time and by several callers, also after a restart of
	// this process. An unknown ID is NotFound.
	Wait(ctx context.Context, id string) (Exit, error)

	// List returns all that the engine holds on this host under its state directory. That includes
	// sandboxes of earlier processes, and stopped ones that were not removed.
	List(ctx context.Context) ([]Status, error)

	// Remove stops the sandbox and frees everything it held. Removing an
	// unknown ID succeeds, so a caller may always retry.
	Remove(ctx context.Context, id string) error
}

// Meter is the ability to measure a running sandbox from outside.
type Meter interface {
	// Usage returns what the sandbox uses. An unknown ID is NotFound.
	Usage(ctx context.Context, id string) (Usage, error)
	// Bounds returns the limits that are in force for the sandbox, read back from what enforces
	// them. Zero means that a limit cannot be read back. An unknown ID is NotFound.
	Bounds(ctx context.Context, id string) (Limits, error)
}

// Limit names one limit.
type Limit string

const (
	LimitMemory Limit = "memory"
	LimitCPU    Limit = "cpu"
	LimitPIDs   Limit = "pids"
	LimitDisk   Limit = "disk"
	LimitInodes Limit = "inodes"
	LimitShm    Limit = "shm"
)

// Limits of a sandbox. Zero in a field is the default, never unlimited.
type Limits struct {
	MemoryBytes int64
	MilliCPU    int64
	PIDs        int64
	DiskBytes   int64
	DiskInodes  int64
	// ShmBytes is the size of /dev/shm, which is in the sandbox's memory.
	ShmBytes int64
}

// DefaultLimits are used for every field that is zero.
var DefaultLimits = Limits{
	MemoryBytes: 1 << 30,
	MilliCPU:    2000,
	PIDs:        512,
	DiskBytes:   4 << 30,
	DiskInodes:  200_000,
	ShmBytes:    64 << 20,
}

// OrDefault fills zero fields with the defaults.
func (l Limits) OrDefault() Limits {
	d := DefaultLimits
	def := d.Fields()
	for limit, have := range l.Fields() {
		if *have == 0 {
			*have = *def[limit]
		}
	}
	return l
}

// Fields returns the fields by the limits' names, so that no rule forgets one.
func (l *Limits) Fields() map[Limit]*int64 {
	return map[Limit]*int64{
		LimitMemory: &l.MemoryBytes, LimitCPU: &l.MilliCPU, LimitPIDs: &l.PIDs,
		LimitDisk: &l.DiskBytes, LimitInodes: &l.DiskInodes, LimitShm: &l.ShmBytes,
	}
}

// Link is a symbolic link inside.
type Link struct {
	Path   string // absolute, inside; the image has nothing there
	Target string // absolute, inside
}

// UserID is the number of the sandbox's user and of its group.
const UserID = 1000

// Spec describes the sandbox to create.
type Spec struct {
	// ID is 1 to 40 characters of [a-z0-9].
	ID       string
	Hostname string
	// Image is what the sandbox starts from. It is stored under the name that the field had when
	// there was only one kind of image.
	Image Image `json:"Root"`
	// Workspace is a host directory shown copy-on-write at /workspace, or ""
	// for an empty one. The host's files never change. Inside, all of them belong
	// to the sandbox's user, regardless of their owner on the host.
	Workspace string
	// Mounts are host files and directories shown copy-on-write, as the workspace is. Unlike the
	// targets of a HostView's binds, theirs must not exist in the image and must not be below a
	// bind of it. No target is below another.
	Mounts []Bind
	// StandIns are host files that are shown in place of others, or where there is none, below
	// binds of a HostView. They are the files that a saved memory refers to, where the host has
	// changed since. A stand-in without a Source is an empty directory where the host has none.
	StandIns []Bind
	// Links are made with the root. None of them is below one of the other places.
	Links  []Link
	Limits Limits
	// SetID lets programs of the image gain the rights of their set-id bits. Only engines with
	// OwnRoot are asked for it. Without it, no program inside gains a right by exec.
	SetID bool `json:",omitempty"`
	// Boot is what the guest reads before it is ready, and again after a restore.
	Boot Boot `json:"-"`
	// Egress connects the sandbox to the egress gateway. It is never stored: an open
	// file means nothing in another process.
	Egress Egress `json:"-"`
	// Events is an empty or earlier file of the same sandbox, opened to append,
	// to which an Observer adds what programs do. The engine hands on a copy:
	// the caller keeps its own. Nil is a sandbox that is not observed.
	Events *os.File
	// EventBytes bounds how large the engine lets the file grow while no reader shortens it. Beyond
	// that, no program can be executed until a reader shortens it. Zero is 64 MiB.
	EventBytes int64
	// Hide are paths inside that are covered by an empty file or directory, which cannot be
	// changed. A path that does not exist need not be hidden.
	Hide []string
	// Absent are paths inside at which the engine shows an empty file or directory, which the guest
	// removes before any program runs. The name is then free inside, and programs may put files of
	// their own there. What the host has there is out of reach.
	Absent []string
	// ReadOnly are paths inside that stay readable and cannot be written, renamed or removed, nor
	// can anything below them; so a path must exist and may not be a symbolic link, which could be
	// replaced. A directory above one can still be renamed, and the protected path moves with it.
	ReadOnly []string
	// Unhurried is set when no caller waits for the sandbox. Until the sandbox is ready, others
	// then have priority on the processors, if the engine can arrange that.
	Unhurried bool
}

// State of a sandbox as the engine sees it.
type State string

const (
	Running State = "running"
	Stopped State = "stopped"
)

// Status is one sandbox that an engine holds.
type Status struct {
	ID      string
	State   State
	Created time.Time
}

// Reason says why a sandbox stopped.
type Reason string

const (
	ReasonExited  Reason = "exited"  // the guest ended by itself
	ReasonKilled  Reason = "killed"  // removed, or killed from outside
	ReasonOOM     Reason = "oom"     // the memory limit was hit
	ReasonCrashed Reason = "crashed" // the engine's own process failed
)

// Exit is how a sandbox ended.
type Exit struct {
	Reason Reason
	Code   int
	At     time.Time
}

// Usage is what a sandbox uses at one time.
type Usage struct {
	At          time.Time
	MemoryBytes int64
	MemoryCache int64
	CPUTime     time.Duration
	PIDs        int64
	DiskBytes   int64
	DiskInodes  int64
}
