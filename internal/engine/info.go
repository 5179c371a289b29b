package engine

// Boundary is the kind of isolation that an engine provides.
type Boundary string

const (
	SharedKernel Boundary = "shared-kernel"
	// WasmRuntime is a WebAssembly runtime in a process that runs in a jail. Programs make no
	// system calls. It is weaker than UserspaceKernel, because the program and the runtime share an
	// address space: a single bug in the runtime's compiler gives a program control of the process.
	WasmRuntime     Boundary = "wasm-runtime"
	UserspaceKernel Boundary = "userspace-kernel"
	OwnKernel       Boundary = "own-kernel"
	NoBoundary      Boundary = "none" // only the fake engine of the tests has none
)

// Info describes an engine on this host.
type Info struct {
	Name      string
	Version   string
	Boundary  Boundary
	NeedsRoot bool
	// Capabilities lists the capabilities of the engine, which implements the interface of each.
	Capabilities []Capability
	// Enforces lists the limits that the engine enforces on this host. Before a new sandbox is
	// returned to its caller, each of these limits that is not in Shows is compared with what Meter
	// reads back.
	Enforces []Limit
	// Shows lists the limits that a program in the sandbox sees as the size of its machine:
	// MemTotal, statfs of the root, RLIMIT_NPROC. On an engine that shares the host's kernel,
	// programs see the host's figures, although the limit is enforced.
	Shows []Limit
	// OwnNetwork is set when a sandbox has its own loopback addresses. Without it, the guest
	// changes no addresses, because they would be the host's. OwnFiles is set when the guest can
	// change only files of the sandbox. Without it, the guest changes no system files.
	OwnNetwork, OwnFiles bool
	// NoRoot is set when no program in the sandbox can be root, because the guest lacks the rights.
	// Requests to run as root are refused.
	NoRoot bool
	// OwnRoot is set when root in the sandbox has no rights on the host. A set-id program of an
	// image may then raise its rights, because they end at the sandbox.
	OwnRoot bool
	// FixedHostname is set when the host name of a sandbox cannot change after its start. A sandbox
	// that waits in the warm pool is then not given to a request with a name.
	FixedHostname bool
	// OnRequest is set when the engine uses a service of the host that has other users. The engine
	// then runs a sandbox only if a request names it or if it is the default.
	OnRequest bool
	// Volumes is set when a sandbox can show directories of the host that its programs change.
	Volumes bool
	// TakesWorkspace is set when the saved memory of a sandbox without a workspace can continue with
	// one.
	TakesWorkspace bool
	// Containers is set when root in a sandbox can be given the rights that container engines need
	// without a right on the host, because the sandbox has a kernel of its own.
	Containers bool
	// DiskInMemory is set when files that a sandbox writes use its memory. The memory limit then
	// also bounds the disk; see Hold.
	DiskInMemory bool
	// Images lists the kinds of images from which a sandbox can start.
	Images []ImageKind
	// Egress lists how a sandbox can be connected to the egress gateway, the preferred way first
	// after EgressNone.
	Egress []EgressKind
	// Unseen lists, in sentences, what the engine does not record about programs and files. It is
	// empty for an Observer that records every program and every change.
	Unseen []string
	// Notes lists, in sentences, protections that are weaker on this host than they could be, for
	// example because no cgroup is writable.
	Notes []string
}

// Attachment returns how sandboxes of the engine are connected to the egress gateway, or EgressNone
// if they have no network.
func (i Info) Attachment() EgressKind {
	for _, kind := range i.Egress {
		if kind != EgressNone {
			return kind
		}
	}
	return EgressNone
}

// Hold returns the effective limits of a sandbox of the engine. If files are in memory, the limits
// of disk and shared memory are at most three quarters of the memory limit: a write must fail with
// "disk full" before the kernel kills the sandbox for lack of memory.
func (i Info) Hold(l Limits) Limits {
	if i.DiskInMemory {
		l.DiskBytes = min(l.DiskBytes, l.MemoryBytes/4*3)
		l.ShmBytes = min(l.ShmBytes, l.MemoryBytes/4*3)
	}
	return l
}

// Capability names an ability that not all engines have.
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

// Implemented returns the capabilities whose interfaces an engine implements.
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
