package attempts

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func itoa(n int) string { return strconv.Itoa(n) }

const onlyOpened = "opens the file and writes nothing"

var procfs = []Attempt{
	{Class: "/proc", Name: "sysrq", Gain: "a host that stops", Control: onlyOpened, run: tryOpen("/proc/sysrq-trigger", unix.O_WRONLY)},
	{Class: "/proc", Name: "modprobe-path", Gain: "a program that the kernel starts as root of the host", Control: onlyOpened, run: tryOpen("/proc/sys/kernel/modprobe", unix.O_WRONLY)},
	{Class: "/proc", Name: "binary-formats", Gain: "an interpreter that the host starts", Control: "in a mount of its own, " + onlyOpened, run: binaryFormats},
	{Class: "/proc", Name: "drop-caches", Gain: "a host that is slow", Control: onlyOpened, run: tryOpen("/proc/sys/vm/drop_caches", unix.O_WRONLY)},
	{Class: "/proc", Name: "panic-setting", Gain: "a host that stops", Control: onlyOpened, run: tryOpen("/proc/sys/kernel/panic", unix.O_WRONLY)},
	{Class: "/proc", Name: "file-limit", Gain: "a host that cannot open files", Control: onlyOpened, run: tryOpen("/proc/sys/fs/file-max", unix.O_WRONLY)},
	{Class: "/proc", Name: "address-randomisation", Gain: "programs of the host at addresses that it knows", Control: onlyOpened, run: tryOpen("/proc/sys/kernel/randomize_va_space", unix.O_WRONLY)},
	{Class: "/proc", Name: "kernel-memory", Gain: "all memory of the host", run: tryOpen("/proc/kcore", unix.O_RDONLY)},
	{Class: "/proc", Name: "kernel-symbols", Gain: "addresses of the kernel", run: tryRead("/proc/kallsyms")},
	{Class: "/proc", Name: "kernel-messages", Gain: "addresses and events of the host", Control: "opens the file and reads nothing", run: func(t *Target) error {
		// Reading a message would remove it for other readers.
		if t.Control {
			return openFile("/proc/kmsg", unix.O_RDONLY)
		}
		return readFile("/proc/kmsg")
	}},
	{Class: "/proc", Name: "memory-map", Gain: "physical addresses", run: tryRead("/proc/iomem")},
	{Class: "/proc", Name: "timers", Gain: "timers of the host's programs", run: tryRead("/proc/timer_list")},
	{Class: "/proc", Name: "disks", Gain: "activity of the host's disks", run: tryRead("/proc/diskstats")},
	{Class: "/proc", Name: "first-root", Gain: "the root of the first process", run: func(t *Target) error { return listDir(t.first("root/")) }},
	{Class: "/proc", Name: "first-environment", Gain: "secrets that the first process was given", run: func(t *Target) error { return readFile(t.first("environ")) }},
	{Class: "/proc", Name: "first-maps", Gain: "addresses of the first process", run: func(t *Target) error { return readFile(t.first("maps")) }},
	{Class: "/proc", Name: "interrupts", Gain: "activity of the host's devices", run: tryRead("/proc/interrupts")},
}

func binaryFormats(t *Target) error {
	if !t.Control {
		return openFile("/proc/sys/fs/binfmt_misc/register", unix.O_WRONLY)
	}
	return onScratch(func(dir string) error {
		if err := unix.Mount("binfmt_misc", dir, "binfmt_misc", 0, ""); err != nil {
			return err
		}
		return openFile(filepath.Join(dir, "register"), unix.O_WRONLY)
	})(t)
}

var corePattern = []Attempt{
	{Class: "core_pattern", Name: "core-pattern", Gain: "a program that the kernel starts as root of the host", Control: onlyOpened, run: tryOpen("/proc/sys/kernel/core_pattern", unix.O_WRONLY)},
	{Class: "core_pattern", Name: "core-pattern-of-own-proc", Gain: "the same past a mask", Control: "in a mount of its own, " + onlyOpened, run: onScratch(func(dir string) error {
		if err := unix.Mount("proc", dir, "proc", 0, ""); err != nil {
			return err
		}
		return openFile(filepath.Join(dir, "sys/kernel/core_pattern"), unix.O_WRONLY)
	})},
	{Class: "core_pattern", Name: "core-pattern-of-first-root", Gain: "the same past a mask", Control: onlyOpened, run: func(t *Target) error {
		return openFile(t.first("root/proc/sys/kernel/core_pattern"), unix.O_WRONLY)
	}},
	{Class: "core_pattern", Name: "core-pipe-limit", Gain: "a program of the host that never ends", Control: onlyOpened, run: tryOpen("/proc/sys/kernel/core_pipe_limit", unix.O_WRONLY)},
	{Class: "core_pattern", Name: "dumps-of-set-id-programs", Gain: "memory of privileged programs of the host", Control: onlyOpened, run: tryOpen("/proc/sys/fs/suid_dumpable", unix.O_WRONLY)},
}

var sysfs = []Attempt{
	{Class: "/sys", Name: "uevent-helper", Gain: "a program that the kernel starts as root of the host", Control: onlyOpened, run: tryOpen("/sys/kernel/uevent_helper", unix.O_WRONLY)},
	{Class: "/sys", Name: "mount-debugfs", Gain: "internals of the kernel", Control: ownNamespaces, run: onScratch(mountKind("debugfs"))},
	{Class: "/sys", Name: "mount-tracefs", Gain: "what the host's programs do", Control: ownNamespaces, run: onScratch(mountKind("tracefs"))},
	{Class: "/sys", Name: "mount-securityfs", Gain: "rules of the host's security modules", Control: ownNamespaces, run: onScratch(mountKind("securityfs"))},
	{Class: "/sys", Name: "mount-bpf", Gain: "the host's kernel programs", Control: ownNamespaces, run: onScratch(mountKind("bpf"))},
	{Class: "/sys", Name: "list-disks", Gain: "the host's disks", run: func(*Target) error { return listDir("/sys/class/block") }},
	{Class: "/sys", Name: "take-processor-offline", Gain: "a host with fewer processors", Control: onlyOpened, run: tryOpen("/sys/devices/system/cpu/cpu1/online", unix.O_WRONLY)},
	{Class: "/sys", Name: "suspend", Gain: "a host that sleeps", Control: onlyOpened, run: tryOpen("/sys/power/state", unix.O_WRONLY)},
	{Class: "/sys", Name: "huge-pages", Gain: "a host with other memory settings", Control: onlyOpened, run: tryOpen("/sys/kernel/mm/transparent_hugepage/enabled", unix.O_WRONLY)},
	{Class: "/sys", Name: "module-parameters", Gain: "other settings of kernel code", Control: onlyOpened, run: tryOpenAny("/sys/module/*/parameters/*", unix.O_WRONLY)},
	{Class: "/sys", Name: "trigger-event", Gain: "forged events of devices", Control: onlyOpened, run: tryOpen("/sys/class/mem/null/uevent", unix.O_WRONLY)},
	{Class: "/sys", Name: "crash-notes", Gain: "physical addresses of the kernel", run: tryRead("/sys/kernel/vmcoreinfo")},
}

// tryOpenAny returns an attempt that opens any file that matches a pattern.
func tryOpenAny(pattern string, flags int) func(*Target) error {
	return func(*Target) error {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		last := error(absentError("there is no " + pattern))
		for _, path := range paths {
			if last = openFile(path, flags); last == nil {
				return nil
			}
		}
		return last
	}
}

var devices = []Attempt{
	{Class: "devices", Name: "node-of-disk", Gain: "the host's disk", Control: "opens the device and reads nothing", run: func(t *Target) error { return node(unix.S_IFBLK, int(t.Device)) }},
	{Class: "devices", Name: "node-of-memory", Gain: "the machine's memory", Control: "makes the node and does not open it", run: func(t *Target) error {
		if t.Control {
			return nodeOnly(unix.S_IFCHR, int(unix.Mkdev(1, 1)))
		}
		return node(unix.S_IFCHR, int(unix.Mkdev(1, 1)))
	}},
	{Class: "devices", Name: "node-of-kernel-messages", Gain: "kernel messages, also forged ones", Control: "opens the device and reads nothing", run: func(*Target) error { return node(unix.S_IFCHR, int(unix.Mkdev(1, 11))) }},
	{Class: "devices", Name: "open-disk", Gain: "the host's disk", Control: "opens the device and reads nothing", run: func(t *Target) error { return openFile(t.Disk, unix.O_RDONLY) }},
	{Class: "devices", Name: "open-memory", Gain: "the machine's memory", Control: "opens the device and reads nothing", run: tryOpen("/dev/mem", unix.O_RDONLY)},
	{Class: "devices", Name: "open-ports", Gain: "the machine's ports", Control: "opens the device and reads nothing", run: tryOpen("/dev/port", unix.O_RDONLY)},
	{Class: "devices", Name: "open-kernel-messages", Gain: "kernel messages, also forged ones", Control: "opens the device and reads nothing", run: tryOpen("/dev/kmsg", unix.O_RDWR)},
	{Class: "devices", Name: "open-loop-control", Gain: "files as disks, and so file system code of the kernel", run: tryOpen("/dev/loop-control", unix.O_RDWR)},
	{Class: "devices", Name: "open-kvm", Gain: "the kernel's code for virtual machines", run: tryOpen("/dev/kvm", unix.O_RDWR)},
	{Class: "devices", Name: "open-fuse", Gain: "file systems of its own, which win races", run: tryOpen("/dev/fuse", unix.O_RDWR)},
	{Class: "devices", Name: "open-tun", Gain: "network devices", run: tryOpen("/dev/net/tun", unix.O_RDWR)},
	{Class: "devices", Name: "mount-devices", Gain: "all devices of the host", Control: ownNamespaces, run: onScratch(mountKind("devtmpfs"))},
	{Class: "devices", Name: "mount-disk", Gain: "the host's files", Control: badArgument, run: onScratch(func(dir string) error { return ignoreNotBlockDevice(unix.Mount("/dev/null", dir, "ext4", 0, "")) })},
	{Class: "devices", Name: "attach-usb", Gain: "the machine's devices", run: tryOpenAny("/dev/bus/usb/*/*", unix.O_RDWR)},
}

// ignoreNotBlockDevice turns an error into success that only a caller with sufficient rights gets.
func ignoreNotBlockDevice(err error) error {
	if err == unix.ENOTBLK {
		return nil
	}
	return err
}

// nodeOnly creates a device file.
func nodeOnly(kind uint32, device int) error {
	return withTemporaryPath(func(path string) error { return unix.Mknod(path, kind|0o600, device) })
}

// node creates a device file and opens it.
func node(kind uint32, device int) error {
	return withTemporaryPath(func(path string) error {
		if err := unix.Mknod(path, kind|0o600, device); err != nil {
			return err
		}
		return openFile(path, unix.O_RDONLY)
	})
}

// withTemporaryPath runs an attempt with a path in a new directory.
func withTemporaryPath(run func(path string) error) error {
	dir, err := os.MkdirTemp("/var/tmp", "escape-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return run(filepath.Join(dir, "name"))
}

var cgroups = []Attempt{
	{Class: "control groups", Name: "release-agent", Gain: "a program that the kernel starts as root of the host", Control: "in a hierarchy of its own, " + onlyOpened, run: onScratch(func(dir string) error {
		if err := unix.Mount("cgroup", dir, "cgroup", 0, "none,name=crannog-escape"); err != nil {
			return err
		}
		return openFile(filepath.Join(dir, "release_agent"), unix.O_WRONLY)
	})},
	{Class: "control groups", Name: "visible-release-agent", Gain: "the same with a hierarchy that is mounted already", Control: onlyOpened, run: tryOpenAny("/sys/fs/cgroup/*/release_agent", unix.O_WRONLY)},
	{Class: "control groups", Name: "mount-unified", Gain: "the limits of all groups", Control: ownNamespaces, run: onScratch(mountKind("cgroup2"))},
	{Class: "control groups", Name: "raise-memory", Gain: "more memory than its limit", Control: onlyOpened, run: tryOpenFirst([]string{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.soft_limit_in_bytes", "/sys/fs/cgroup/memory.max"})},
	{Class: "control groups", Name: "raise-processes", Gain: "more processes than its limit", Control: "also with another setting, " + onlyOpened, run: tryOpenFirst([]string{"/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/cgroup.clone_children"})},
	{Class: "control groups", Name: "leave-group", Gain: "no limits", Control: onlyOpened, run: tryOpenAny("/sys/fs/cgroup/*/cgroup.procs", unix.O_WRONLY)},
	{Class: "control groups", Name: "new-group", Gain: "limits of its own", run: newGroup},
	{Class: "control groups", Name: "allow-devices", Gain: "the host's devices", Control: onlyOpened, run: tryOpenAny("/sys/fs/cgroup/devices/devices.allow", unix.O_WRONLY)},
}

// tryOpenFirst returns an attempt that opens one of several files, which exist on different hosts.
func tryOpenFirst(paths []string) func(*Target) error {
	return func(*Target) error {
		last := error(unix.ENOENT)
		for _, path := range paths {
			if err := openFile(path, unix.O_WRONLY); err == nil {
				return nil
			} else if err != unix.ENOENT {
				last = err
			}
		}
		return last
	}
}

// newGroup creates a control group and removes it.
func newGroup(*Target) error {
	last := error(absentError("there are no control groups"))
	for _, parent := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		if _, err := os.Stat(parent + "/cgroup.procs"); err != nil {
			continue
		}
		path := filepath.Join(parent, "escape-"+itoa(os.Getpid()))
		if last = os.Mkdir(path, 0o755); last == nil {
			return os.Remove(path)
		}
	}
	return last
}

var hostFiles = []Attempt{
	{Class: "host files", Name: "home-of-root", Gain: "keys and settings of root", run: tryReadSecretIn("/root")},
	{Class: "host files", Name: "settings", Gain: "settings of the host", run: tryReadSecretIn("/etc")},
	{Class: "host files", Name: "temporary-files", Gain: "files of the host's programs", run: tryReadSecretIn("/tmp")},
	{Class: "host files", Name: "kept-temporary-files", Gain: "files of the host's programs", run: tryReadSecretIn("/var/tmp")},
	{Class: "host files", Name: "program-data", Gain: "data of the host's services", run: tryReadSecretIn("/var/lib")},
	{Class: "host files", Name: "run-files", Gain: "state of the host's services", run: tryReadSecretIn("/run")},
	{Class: "host files", Name: "homes", Gain: "files of the host's users", run: tryReadSecretIn("/home")},
	{Class: "host files", Name: "memory-files", Gain: "memory of the host's programs", run: tryReadSecretIn("/dev/shm")},
	{Class: "host files", Name: "state-of-the-server", Gain: "keys and files of all sandboxes", run: func(t *Target) error { return listDir(filepath.Dir(t.Server)) }},
	{Class: "host files", Name: "shadow", Gain: "passwords of the host's users", run: func(t *Target) error {
		data, err := os.ReadFile("/etc/shadow")
		if err == nil && !t.Control && !strings.Contains(string(data), SecretText) {
			return absentError("/etc/shadow is the sandbox's")
		}
		return err
	}},
}

// tryReadSecretIn returns an attempt that reads the host's secret in a directory.
func tryReadSecretIn(dir string) func(*Target) error {
	return func(t *Target) error {
		path := t.Secrets[dir]
		if path == "" {
			return absentError("the host has no secret in " + dir)
		}
		return readSecret(path)
	}
}
