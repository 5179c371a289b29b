// Package ocispec owns the OCI runtime specification of a sandbox's first process. Build is a pure
// function of its parameters, so that a golden file shows every change of a capability, mount or
// limit in review.
package ocispec

import (
	"fmt"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crannog/crannog/internal/engine"
)

// Params holds the properties in which sandboxes differ.
type Params struct {
	RootPath string
	Guest    string // path of the guest's program in the sandbox
	// Arguments are the arguments of the guest. They name the descriptors that the engine passes to
	// it.
	Arguments []string
	Hostname  string
	Limits    engine.Limits
	// SetID lets programs gain the rights of their set-id bits.
	SetID bool
	// Containers gives root of the sandbox what container engines need. Only a runtime with its own
	// kernel may get it, because the capabilities apply to the kernel that runs the sandbox.
	Containers bool
}

// GuestArg0 is the argv[0] of the guest's program. The binary chooses its role by it.
const GuestArg0 = "crannog-guest"

// capabilities lists the capabilities of the guest, in the sandbox's own kernel. None of them
// reaches the host. Those that could be used against the boundary are left out: CAP_SYS_ADMIN,
// CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_PTRACE, CAP_MKNOD, CAP_NET_ADMIN, CAP_NET_RAW,
// CAP_DAC_READ_SEARCH, CAP_SYS_RESOURCE (which could lift the process limit), CAP_SYS_BOOT,
// CAP_SYS_TIME, CAP_BPF.
var capabilities = []string{
	"CAP_CHOWN",            // uploads belong to the user who requests them
	"CAP_DAC_OVERRIDE",     // root in the sandbox reads and writes all its files
	"CAP_FOWNER",           // modes and times of the user's files
	"CAP_FSETID",           // keep set-id bits on a chown by root in the sandbox
	"CAP_KILL",             // end processes of any user in the sandbox
	"CAP_NET_BIND_SERVICE", // root in the sandbox listens on ports below 1024
	"CAP_SETGID",           // become the sandbox's user
	"CAP_SETPCAP",          // root in the sandbox drops capabilities for good
	"CAP_SETUID",           // become the sandbox's user
	"CAP_SYS_CHROOT",       // builds that chroot into their own tree
}

// containerCapabilities are what dockerd and podman need in addition. They apply to the sandbox's
// own kernel. CAP_SYS_RESOURCE is missing, because root could then raise the limit of processes.
var containerCapabilities = []string{
	"CAP_AUDIT_WRITE", // containers get it by default, so it must be there to give
	"CAP_MKNOD",       // devices of a container's /dev
	"CAP_NET_ADMIN",   // bridges, addresses and packet filters
	"CAP_NET_RAW",     // iptables; containers get it by default
	"CAP_SETFCAP",     // containers get it by default
	"CAP_SYS_ADMIN",   // mounts and namespaces
}

// maskedPaths lists paths that reveal facts about the host or its kernel on engines that share the
// host's kernel. gVisor serves none of them from the host. They are masked in case that changes.
var maskedPaths = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys",
	"/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list",
	"/proc/timer_stats", "/sys/firmware", "/sys/devices/virtual/powercap",
}

// readonlyPaths lists paths through which settings of the kernel could be changed.
var readonlyPaths = []string{
	"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger",
}

// maxOpenFiles bounds the descriptors per process. It is large enough for build tools and servers,
// and small enough that a leak fails in the sandbox and not in the engine.
const maxOpenFiles = 65536

// Build returns the specification.
func Build(p Params) *specs.Spec {
	limits := p.Limits.OrDefault()
	nosuidNodev := []string{"nosuid", "nodev"}
	capabilities, readonlyPaths, mounts := capabilities, readonlyPaths, []specs.Mount(nil)
	if p.Containers {
		capabilities = append(slices.Clip(capabilities), containerCapabilities...)
		readonlyPaths = nil
		mounts = append(mounts, specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: append([]string{"noexec"}, nosuidNodev...)})
	}
	return &specs.Spec{
		Version:  "1.2.0",
		Hostname: p.Hostname,
		// Programs in the sandbox can write to the root, but every write goes to the sandbox's own
		// overlay. The tree below it is opened read-only.
		Root: &specs.Root{Path: p.RootPath},
		Process: &specs.Process{
			Args: append([]string{p.Guest}, p.Arguments...),
			Cwd:  "/",
			Env: []string{
				"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
				"HOME=/root",
			},
			// No program in the sandbox gains a privilege by exec: a copied set-id file is an
			// ordinary file. The exception is an image whose own programs, such as sudo, make its
			// users root of the sandbox.
			NoNewPrivileges: !p.SetID,
			Capabilities: &specs.LinuxCapabilities{
				Bounding:  capabilities,
				Effective: capabilities,
				Permitted: capabilities,
			},
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_NOFILE", Hard: maxOpenFiles, Soft: maxOpenFiles},
				{Type: "RLIMIT_CORE", Hard: 0, Soft: 0},
				{Type: "RLIMIT_NPROC", Hard: uint64(limits.PIDs), Soft: uint64(limits.PIDs)},
			},
		},
		Mounts: append([]specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: append([]string{"noexec"}, nosuidNodev...)},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: append([]string{"noexec", "ro"}, nosuidNodev...)},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755", "size=65536k"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: append([]string{"mode=1777", fmt.Sprintf("size=%dk", limits.ShmBytes>>10)}, nosuidNodev...)},
		}, mounts...),
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace},
			},
			MaskedPaths:   maskedPaths,
			ReadonlyPaths: readonlyPaths,
		},
	}
}

// Cover returns a mount that shows source, a file or directory of the host, at a path in the
// sandbox. Programs cannot change, rename or remove anything in it.
func Cover(inside, source string) specs.Mount {
	return specs.Mount{
		Destination: inside, Type: "bind", Source: source,
		Options: []string{"rbind", "ro", "nosuid", "nodev"},
	}
}

// Volume returns a mount of a host directory whose files programs can change.
func Volume(v engine.Volume) specs.Mount {
	access := "rw"
	if v.ReadOnly {
		access = "ro"
	}
	return specs.Mount{Destination: v.Target, Type: "bind", Source: v.Source, Options: []string{"bind", access, "nosuid", "nodev"}}
}

// Blank returns a mount that shows an empty read-only directory at a path in the sandbox.
func Blank(inside string) specs.Mount {
	return specs.Mount{
		Destination: inside, Type: "tmpfs", Source: "tmpfs",
		Options: []string{"ro", "nosuid", "nodev", "noexec", "mode=555", "size=4k"},
	}
}
