package engine

// Boundary is the kind of isolation that an engine provides, so that a jail is not
// mistaken for a virtual machine.
type Boundary string

const (
	SharedKernel Boundary = "shared-kernel"
	// WasmRuntime is a WebAssembly runtime in a process that is itself in a jail. Programs make no
	// system calls. It is weaker than UserspaceKernel, because the program and the runtime share an
	// address space: one mistake of the runtime's compiler gives a program the process.
	WasmRuntime     Boundary = "wasm-runtime"
	UserspaceKernel Boundary = "userspace-kernel"
	OwnKernel       Boundary = "own-kernel"
	NoBoundary      Boundary = "none" // the fake: for tests only
)

// Info describes an engine on this host.
type Info struct {
	Name      string
	Version   string
	Boundary  Boundary
	NeedsRoot bool
	// Capabilities lists what the engine can do beyond Engine. For each one it
	// implements the interface.
	Capabilities []Capability
	// Enforces lists the limits that hold on this host. Those that are not in Shows are
	// compared with what Meter reads back before a sandbox is handed to its caller.
	Enforces []Limit
	// Shows lists the limits that a program inside reads as the size of its machine:
	// MemTotal, statfs of the root, RLIMIT_NPROC. On an engine that shares the host's
	// kernel these are the host's figures, although the limit holds.
	Shows []Limit
	// OwnNetwork is set when a sandbox has loopback addresses of its own, and OwnFiles when all
	// files that its guest can change are its own. Where one is not set, the guest leaves the
	// host's addresses or files alone.
	OwnNetwork, OwnFiles bool
	// NoRoot is set when no program inside can be root: the guest has no rights that it
	// could give. A request to act as root is refused.
	NoRoot bool
	// OwnRoot is set when root inside is no user of the host, whatever it does: a set-id
	// program of an image may then give its rights, because they reach no further than the
	// sandbox.
	OwnRoot bool
	// OnRequest is set when the engine uses a service of the host that has other users. It then runs
	// a sandbox only if a request names it or if it is the default.
	OnRequest bool
	// DiskInMemory is set when what a sandbox writes is in its memory, so that its disk is
	// bounded by that as well (Hold).
	DiskInMemory bool
	// Images lists what a sandbox can start from.
	Images []ImageKind
	// Egress lists how a sandbox can be connected to the egress gateway.
	Egress []EgressKind
	// Notes describe in sentences what is weaker on this host than it could be,
	// for instance that there is no writable cgroup.
	Notes []string
}

// Hold returns the limits that hold for a sandbox of the engine. Where files are in memory, disk and
// shared memory have at most three quarters of it: a sandbox must be told that its disk is full
// before the kernel ends it for lack of memory.
func (i Info) Hold(l Limits) Limits {
	if i.DiskInMemory {
		l.DiskBytes = min(l.DiskBytes, l.MemoryBytes/4*3)
		l.ShmBytes = min(l.ShmBytes, l.MemoryBytes/4*3)
	}
	return l
}

// Capability names what only some engines can do.
type Capability string

const (
	CanMeasure    Capability = "meter"
	CanObserve    Capability = "observer"
	CanFreeze     Capability = "freezer"
	CanCheckpoint Capability = "checkpointer"
	CanBind       Capability = "binder"
	CanArchive    Capability = "archiver"
	CanWarm       Capability = "warmer"
)

// Implemented returns the capabilities whose interface an engine implements.
func Implemented(e any) []Capability {
	var list []Capability
	add := func(c Capability, ok bool) {
		if ok {
			list = append(list, c)
		}
	}
	_, ok := e.(Meter)
	add(CanMeasure, ok)
	_, ok = e.(Observer)
	add(CanObserve, ok)
	_, ok = e.(Freezer)
	add(CanFreeze, ok)
	_, ok = e.(Checkpointer)
	add(CanCheckpoint, ok)
	_, ok = e.(Binder)
	add(CanBind, ok)
	_, ok = e.(Archiver)
	add(CanArchive, ok)
	_, ok = e.(Warmer)
	add(CanWarm, ok)
	return list
}
