package enginetest

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/reexec"
)

// probeArg is the first argument that makes a test binary a probe.
const probeArg = "enginetest-probe"

// ProbeRole lets a test binary run the probes. The same binary runs inside a
// box, where a probe must be refused, and on the host as root, where it must
// not be: without that control a refusal proves nothing.
func ProbeRole() reexec.Role {
	return reexec.Role{
		Match: func(args []string) bool { return len(args) > 2 && args[1] == probeArg },
		Run: func() {
			for _, name := range os.Args[2:] {
				fmt.Println(name, verdict(probes[name]()))
			}
		},
	}
}

// verdict tells a refusal from everything else. Dangerous calls are made with
// arguments that a kernel which permits them rejects as bad, so that nothing
// happens where they are permitted.
func verdict(err error) string {
	for _, refusal := range []error{
		unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EROFS, unix.ENODEV, unix.EOPNOTSUPP,
		unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, unix.ESOCKTNOSUPPORT, os.ErrNotExist,
	} {
		if errors.Is(err, refusal) {
			return "refused"
		}
	}
	return fmt.Sprintf("permitted (%v)", err)
}

func syscallProbe(nr, a, b, c, d uintptr) func() error {
	return func() error {
		_, _, errno := unix.Syscall6(nr, a, b, c, d, 0, 0)
		if errno != 0 {
			return errno
		}
		return nil
	}
}

func openProbe(path string, flags int) func() error {
	return func() error {
		f, err := os.OpenFile(path, flags, 0)
		if err != nil {
			return err
		}
		return f.Close()
	}
}

func socketProbe(family, kind, protocol int) func() error {
	return func() error {
		fd, err := unix.Socket(family, kind, protocol)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
}

const bad = ^uintptr(4095) // an address that is never mapped

// probes are the attempts, by name. Each must be refused inside a box, as its
// user and as its root.
var probes = map[string]func() error{
	"mount-tmpfs":        func() error { return unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "") },
	"remount-root":       func() error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "") },
	"pivot-root":         syscallProbe(unix.SYS_PIVOT_ROOT, bad, bad, 0, 0),
	"kexec-load":         syscallProbe(unix.SYS_KEXEC_LOAD, 0, 99, bad, ^uintptr(0)),
	"init-module":        syscallProbe(unix.SYS_INIT_MODULE, bad, 1, bad, 0),
	"finit-module":       syscallProbe(unix.SYS_FINIT_MODULE, ^uintptr(0), bad, 0, 0),
	"delete-module":      syscallProbe(unix.SYS_DELETE_MODULE, bad, 0, 0, 0),
	"bpf":                syscallProbe(unix.SYS_BPF, 0, bad, 128, 0),
	"userfaultfd":        syscallProbe(unix.SYS_USERFAULTFD, 0xffff, 0, 0, 0),
	"perf-event-open":    syscallProbe(unix.SYS_PERF_EVENT_OPEN, bad, 0, 0, ^uintptr(0)),
	"io-uring":           syscallProbe(unix.SYS_IO_URING_SETUP, 1, bad, 0, 0),
	"add-key":            syscallProbe(unix.SYS_ADD_KEY, bad, bad, bad, 1),
	"acct":               syscallProbe(unix.SYS_ACCT, bad, 0, 0, 0),
	"swapon":             syscallProbe(unix.SYS_SWAPON, bad, 0, 0, 0),
	"reboot":             syscallProbe(unix.SYS_REBOOT, 1, 2, 3, 0),
	"set-time":           func() error { return unix.Settimeofday(&unix.Timeval{Sec: -1, Usec: -1}) },
	"set-hostname":       syscallProbe(unix.SYS_SETHOSTNAME, bad, 1, 0, 0),
	"iopl":               syscallProbe(unix.SYS_IOPL, 3, 0, 0, 0),
	"open-by-handle":     syscallProbe(unix.SYS_OPEN_BY_HANDLE_AT, uintptr(0xffffff9c), bad, 0, 0),
	"packet-socket":      socketProbe(unix.AF_PACKET, unix.SOCK_RAW, 0x0300),
	"raw-socket":         socketProbe(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),
	"alg-socket":         socketProbe(unix.AF_ALG, unix.SOCK_SEQPACKET, 0),
	"vsock":              socketProbe(unix.AF_VSOCK, unix.SOCK_STREAM, 0),
	"open-kcore":         openProbe("/proc/kcore", os.O_RDONLY),
	"open-kmsg":          openProbe("/dev/kmsg", os.O_RDONLY),
	"open-mem":           openProbe("/dev/mem", os.O_RDONLY),
	"write-core-pattern": openProbe("/proc/sys/kernel/core_pattern", os.O_WRONLY),
	"make-block-device":  makeBlockDevice,
	"trace-guest":        traceInit,
	"join-init-mounts":   joinInitMounts,
	"connect-link-local": connectTo("169.254.169.254:80"),
}

// makeBlockDevice makes a node for the first disk's number and opens it.
func makeBlockDevice() error {
	name := fmt.Sprintf("/tmp/disk-%d", os.Getpid())
	if err := unix.Mknod(name, unix.S_IFBLK|0o600, int(unix.Mkdev(254, 0))); err != nil {
		return err
	}
	return os.Remove(name)
}

// traceInit attaches to PID 1. On the host that would stop the machine's
// init, so the control there traces this process's parent's sibling: itself
// is never permitted, so a child is made for it.
func traceInit() error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(tracee()), 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	_, _, _ = unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(tracee()), 0, 0, 0, 0)
	return nil
}

func tracee() int {
	if pid := os.Getenv("PROBE_TRACEE"); pid != "" {
		var n int
		if _, err := fmt.Sscan(pid, &n); err == nil {
			return n
		}
	}
	return 1
}

func joinInitMounts() error {
	fd, err := unix.Open("/proc/1/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Setns(fd, unix.CLONE_NEWNS)
}

// connectTo is refused by a network that leads nowhere. Its control is not
// the host's own network but a listener: see boundary/host-loopback.
func connectTo(address string) func() error {
	return func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			return conn.Close()
		}
		if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ECONNREFUSED) {
			return unix.EPERM
		}
		return err
	}
}

func probeNames() []string { return slices.Sorted(maps.Keys(probes)) }
