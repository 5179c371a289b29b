// Package engine owns the contract between a sandbox and the engine that isolates it: the
// interfaces, their types and the limits. It depends on no particular engine.
package engine

import (
	"context"
	"net"
	"os"
	"runtime"
	"time"
)

// Engine isolates sandboxes. All methods are safe for concurrent use. They take IDs rather than
// objects, because a sandbox outlives the process that created it.
type Engine interface {
	// Info describes the engine on this host. It does no I/O.
	Info() Info

	// Probe checks whether this host meets the engine's needs and returns a finding for each check.
	// A finding with ResultFail means that no sandbox can run here. Probe starts no sandbox and
	// leaves nothing behind.
	Probe(ctx context.Context) []Finding

	// Create creates a sandbox, and returns when it has booted and its guest answers on
	// guestboot.Port. After an error nothing of the sandbox is left. An ID in use is a fault of
	// kind Exists.
	Create(ctx context.Context, spec Spec) error

	// Dial opens a stream to a TCP port on the sandbox's loopback. A port without a listener is a
	// fault of kind Unavailable with the code "port_closed"; an unknown or stopped sandbox is
	// NotFound.
	Dial(ctx context.Context, id string, port int) (net.Conn, error)

	// Wait returns when the sandbox has stopped, for any reason. It may be called at any time and
	// by several callers, also after a restart of this process. An unknown ID is NotFound.
	Wait(ctx context.Context, id string) (Exit, error)

	// List returns all sandboxes that the engine has on this host under its state directory. That
	// includes sandboxes of earlier processes, and stopped ones that were not removed.
	List(ctx context.Context) ([]Status, error)

	// Remove stops the sandbox and frees all its resources. Removing an unknown ID succeeds, so a
	// caller may always retry.
	Remove(ctx context.Context, id string) error
}

// Meter is the ability to measure a running sandbox from outside.
type Meter interface {
	// Usage returns the resources that the sandbox uses. An unknown ID is NotFound.
	Usage(ctx context.Context, id string) (Usage, error)
	// Bounds returns the limits that are in force for the sandbox, read back from the kernel or
	// service that enforces them. Zero means that a limit cannot be read back. An unknown ID is
	// NotFound.
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

// Limits are the limits of a sandbox. A zero field stands for the default, never for unlimited.
type Limits struct {
	MemoryBytes int64
	MilliCPU    int64
	PIDs        int64
	DiskBytes   int64
	DiskInodes  int64
	// ShmBytes is the size of /dev/shm, which counts as memory of the sandbox.
	ShmBytes int64
}

// DefaultLimits replaces zero fields of Limits.
var DefaultLimits = Limits{
	MemoryBytes: 1 << 30,
	MilliCPU:    2000,
	PIDs:        512,
	DiskBytes:   4 << 30,
	DiskInodes:  200_000,
	ShmBytes:    64 << 20,
}

// OrDefault returns the limits with zero fields replaced by the defaults.
func (l Limits) OrDefault() Limits {
	d := DefaultLimits
	defaults := d.Fields()
	for limit, value := range l.Fields() {
		if *value == 0 {
			*value = *defaults[limit]
		}
	}
	return l
}

// Processors returns how many of the host's processors a sandbox with these limits sees.
func (l Limits) Processors() int {
	return int(min(max((l.MilliCPU+999)/1000, 1), int64(runtime.NumCPU())))
}

// Fields returns pointers to the fields by the names of the limits, for checks of all limits.
func (l *Limits) Fields() map[Limit]*int64 {
	return map[Limit]*int64{
		LimitMemory: &l.MemoryBytes, LimitCPU: &l.MilliCPU, LimitPIDs: &l.PIDs,
		LimitDisk: &l.DiskBytes, LimitInodes: &l.DiskInodes, LimitShm: &l.ShmBytes,
	}
}

// Link is a symbolic link in the sandbox.
type Link struct {
	Path   string // absolute path in the sandbox that does not exist in the image
	Target string // absolute path in the sandbox
}

// UserID is the user ID and the group ID of the sandbox's user.
const UserID = 1000

// Spec describes the sandbox to create.
type Spec struct {
	// ID is 1 to 40 characters of [a-z0-9].
	ID       string
	Hostname string
	// Image is what the sandbox starts from. The stored form keeps the name that the field had when
	// there was only one kind of image.
	Image Image `json:"Root"`
	// Workspace is a host directory shown copy-on-write at /workspace, or "" for an empty one. The
	// host's files never change. In the sandbox, all of them belong to the sandbox's user,
	// regardless of their owner on the host.
	Workspace string
	// TakesWorkspace is set if the saved memory of a sandbox without a Workspace may continue with
	// one. It is also set when that memory continues. It may be set only if TakesWorkspace is set in
	// the engine's Info.
	TakesWorkspace bool `json:",omitempty"`
	// Mounts are host files and directories shown copy-on-write, like the workspace. The target of
	// a mount must not exist in the image, must not be below a bind of a HostView, and must not be
	// below another target.
	Mounts []Bind
	// Volumes are host directories whose files programs in the sandbox can change. The rules for
	// targets are those of Mounts. Volumes are not part of a saved state: a restored sandbox shows
	// the directory as it is at that time. They are allowed only if Volumes is set in the engine's
	// Info.
	Volumes []Volume `json:",omitempty"`
	// StandIns are host files shown instead of other files below binds of a HostView. They are the
	// earlier versions of files that a saved memory refers to and that have since changed on the
	// host. A stand-in without a Source is an empty directory, for a directory that the host no
	// longer has.
	StandIns []Bind
	// Links are created together with the root. None of them is below another mount.
	Links  []Link
	Limits Limits
	// SetID allows set-user-ID and set-group-ID programs of the image to take effect. It may be set
	// only for engines with OwnRoot. Otherwise no program in the sandbox gains rights by exec.
	SetID bool `json:",omitempty"`
	// Containers lets root in the sandbox run container engines: it has the capabilities that
	// these need, over the sandbox's own kernel only, and control groups are visible. It may be set
	// only for engines with Containers in their Info.
	Containers bool `json:",omitempty"`
	// Boot is read by the guest before it is ready, and again after a restore.
	Boot Boot `json:"-"`
	// Egress connects the sandbox to the egress gateway. It is never stored, because an open file
	// means nothing in another process.
	Egress Egress `json:"-"`
	// Events is a file to which an Observer appends what programs do. It is opened for appending,
	// and empty or from an earlier run of the same sandbox. The engine passes a copy to its
	// process, and the caller keeps its own. If Events is nil, the sandbox is not observed.
	Events *os.File
	// EventBytes bounds the size of the events file. When the file is full, no program can be
	// executed until a reader shortens it. Zero stands for 64 MiB.
	EventBytes int64
	// Hide lists paths in the sandbox that are covered by an empty file or directory, which cannot
	// be changed. A path that does not exist need not be hidden.
	Hide []string
	// Absent lists paths in the sandbox at which the engine shows an empty file or directory, which
	// the guest removes before any program runs. Programs can then create their own files under
	// that name. They cannot reach the host's file.
	Absent []string
	// ReadOnly lists paths in the sandbox that can be read, but neither they nor anything below
	// them can be written, renamed or removed. Such a path must exist and must not be a symbolic
	// link, because a link could be replaced. A directory above it can still be renamed, and the
	// protected path moves with it.
	ReadOnly []string
	// Unhurried is set when no caller waits for the sandbox. If possible, the engine gives other
	// sandboxes priority on the processors until this one is ready.
	Unhurried bool
}

// State is the state of a sandbox in the engine.
type State string

const (
	Running State = "running"
	Stopped State = "stopped"
)

// Status describes one sandbox of an engine.
type Status struct {
	ID      string
	State   State
	Created time.Time
}

// Reason is why a sandbox stopped.
type Reason string

const (
	ReasonExited  Reason = "exited"  // the guest ended by itself
	ReasonKilled  Reason = "killed"  // removed, or killed from outside
	ReasonOOM     Reason = "oom"     // it exceeded its memory limit
	ReasonCrashed Reason = "crashed" // the engine's own process failed
)

// Exit describes how a sandbox ended.
type Exit struct {
	Reason Reason
	Code   int
	At     time.Time
}

// Usage lists the resources that a sandbox uses at a point in time.
type Usage struct {
	At          time.Time
	MemoryBytes int64
	MemoryCache int64
	CPUTime     time.Duration
	PIDs        int64
	DiskBytes   int64
	DiskInodes  int64
}
