package attempts

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	ownNamespaces = "in a mount namespace of its own"
	badArgument   = "with an argument that is checked after the caller's rights"
)

var mounts = []Attempt{
	{Class: "mounts", Name: "mount-tmpfs", Gain: "files of its choice over those that others read", Control: ownNamespaces, run: onScratch(mountKind("tmpfs"))},
	{Class: "mounts", Name: "mount-proc", Gain: "a /proc without the masks", Control: ownNamespaces, run: onScratch(mountKind("proc"))},
	{Class: "mounts", Name: "mount-sysfs", Gain: "a writable /sys", Control: ownNamespaces, run: onScratch(mountKind("sysfs"))},
	{Class: "mounts", Name: "mount-overlay", Gain: "files with rights that their file system does not give", Control: ownNamespaces, run: onScratch(mountOverlay)},
	{Class: "mounts", Name: "bind", Gain: "a hidden directory at another path", Control: ownNamespaces, run: onScratch(func(dir string) error {
		return unix.Mount("/usr", dir, "", unix.MS_BIND|unix.MS_REC, "")
	})},
	{Class: "mounts", Name: "remount-root", Gain: "a read-only root that is writable", Control: ownNamespaces, run: func(*Target) error {
		return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "")
	}},
	{Class: "mounts", Name: "unmount-mask", Gain: "what a mask hides", Control: "of a mount that it made", run: func(t *Target) error {
		if !t.Control {
			return unix.Unmount("/dev/shm", unix.MNT_DETACH)
		}
		return onScratch(func(dir string) error {
			if err := mountKind("tmpfs")(dir); err != nil {
				return err
			}
			return unix.Unmount(dir, unix.MNT_DETACH)
		})(t)
	}},
	{Class: "mounts", Name: "share-mounts", Gain: "mounts that appear outside", Control: ownNamespaces, run: func(*Target) error {
		return unix.Mount("", "/", "", unix.MS_PRIVATE, "")
	}},
	{Class: "mounts", Name: "pivot-root", Gain: "another root", Control: badArgument, run: trySyscall(unix.SYS_PIVOT_ROOT, badPointer, badPointer)},
	{Class: "mounts", Name: "open-tree", Gain: "a copy of the mounts without masks", run: descriptor(func() (int, error) {
		return unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	})},
	{Class: "mounts", Name: "fsopen", Gain: "a mount by the newer calls, which old filters forget", run: descriptor(func() (int, error) {
		return unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	})},
	{Class: "mounts", Name: "move-mount", Gain: "a mount at another place", Control: badArgument, run: trySyscall(unix.SYS_MOVE_MOUNT, badDescriptor, badPointer, badDescriptor, badPointer, 0)},
	{Class: "mounts", Name: "mount-setattr", Gain: "a read-only mount that is writable", Control: badArgument, run: trySyscall(unix.SYS_MOUNT_SETATTR, badDescriptor, badPointer, 0, badPointer, 32)},
	{Class: "mounts", Name: "chroot", Gain: "a root from which .. leads out", Control: "of its own thread", run: func(*Target) error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		return unix.Chroot("/tmp")
	}},
}

func mountKind(kind string) func(string) error {
	return func(dir string) error { return unix.Mount(kind, dir, kind, 0, "") }
}

func mountOverlay(dir string) error {
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	at := filepath.Join(dir, "merged")
	options := "lowerdir=" + dir + "/lower,upperdir=" + dir + "/upper,workdir=" + dir + "/work"
	if err := unix.Mount("overlay", at, "overlay", 0, options); err != nil {
		return err
	}
	return unix.Unmount(at, unix.MNT_DETACH)
}

// unknown is the error of a kernel without a kind of namespace.
var unknown = []syscall.Errno{unix.EINVAL}

var namespaces = []Attempt{
	{Class: "namespaces", Name: "new-user-namespace", Gain: "all capabilities in a namespace of its own, and so the kernel code behind them", run: tryClone(syscall.CLONE_NEWUSER), refused: unknown},
	{Class: "namespaces", Name: "new-user-and-mount-namespace", Gain: "mounts as an unprivileged user", run: tryClone(syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS), refused: unknown},
	{Class: "namespaces", Name: "new-user-and-network-namespace", Gain: "netfilter and network devices as an unprivileged user", run: tryClone(syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET), refused: unknown},
	{Class: "namespaces", Name: "new-mount-namespace", Gain: "mounts of its own", run: tryUnshare(unix.CLONE_NEWNS | unix.CLONE_FS), refused: unknown},
	{Class: "namespaces", Name: "new-network-namespace", Gain: "network devices of its own", run: tryUnshare(unix.CLONE_NEWNET), refused: unknown},
	{Class: "namespaces", Name: "new-pid-namespace", Gain: "processes that the sandbox's limits and records do not show", run: tryUnshare(unix.CLONE_NEWPID), refused: unknown},
	{Class: "namespaces", Name: "new-ipc-namespace", Gain: "limits of IPC of its own", run: tryUnshare(unix.CLONE_NEWIPC), refused: unknown},
	{Class: "namespaces", Name: "new-uts-namespace", Gain: "a host name of its own", run: tryUnshare(unix.CLONE_NEWUTS), refused: unknown},
	{Class: "namespaces", Name: "new-cgroup-namespace", Gain: "another view of the control groups", run: tryUnshare(unix.CLONE_NEWCGROUP), refused: unknown},
	{Class: "namespaces", Name: "join-mounts", Gain: "the mounts of the first process", run: tryJoin("mnt", unix.CLONE_NEWNS)},
	{Class: "namespaces", Name: "join-network", Gain: "the network of the first process", run: tryJoin("net", unix.CLONE_NEWNET)},
	{Class: "namespaces", Name: "join-pids", Gain: "the processes of the first process", run: tryJoin("pid", unix.CLONE_NEWPID)},
	{Class: "namespaces", Name: "join-ipc", Gain: "the IPC of the first process", run: tryJoin("ipc", unix.CLONE_NEWIPC)},
	{Class: "namespaces", Name: "join-names", Gain: "the host name of the first process", run: tryJoin("uts", unix.CLONE_NEWUTS)},
	{Class: "namespaces", Name: "join-cgroup", Gain: "the control groups of the first process", run: tryJoin("cgroup", unix.CLONE_NEWCGROUP)},
	{Class: "namespaces", Name: "join-by-pidfd", Gain: "all namespaces of the first process at once", run: joinByPidfd},
	{Class: "namespaces", Name: "join-parent", Gain: "the user namespace above", Control: "of a namespace of its own thread", run: joinParent, refused: []syscall.Errno{unix.ENOTTY}},
	{Class: "namespaces", Name: "map-all-users", Gain: "the IDs of all users of the host", run: func(*Target) error {
		return child(&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: []syscall.SysProcIDMap{{Size: 65536}}})
	}},
}

// child starts a program that ends at once.
func child(attr *syscall.SysProcAttr) error {
	cmd := exec.Command("/proc/self/exe", DoNothing)
	cmd.SysProcAttr = attr
	return cmd.Run()
}

// DoNothing is the argument with which the probe program ends at once.
const DoNothing = "nothing"

// tryClone returns an attempt that starts a process in new namespaces.
func tryClone(flags uintptr) func(*Target) error {
	return func(*Target) error { return child(&syscall.SysProcAttr{Cloneflags: flags}) }
}

// tryUnshare returns an attempt that moves a thread into new namespaces.
func tryUnshare(flags int) func(*Target) error {
	return func(*Target) error { return unix.Unshare(flags) }
}

// tryJoin returns an attempt that joins a namespace of the first process.
func tryJoin(kind string, flag int) func(*Target) error {
	return func(t *Target) error {
		fd, err := unix.Open(t.first("ns/"+kind), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		// A thread that shares its root with another thread cannot join a mount namespace.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		return unix.Setns(fd, flag)
	}
}

func joinByPidfd(t *Target) error {
	fd, err := unix.PidfdOpen(t.First, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	return unix.Setns(fd, unix.CLONE_NEWNS|unix.CLONE_NEWNET|unix.CLONE_NEWUTS)
}

// joinParent asks for the parent of the user namespace. The host's has no parent, so the control
// asks for the owner of another namespace.
func joinParent(t *Target) error {
	const getUserNamespace, getParent = 0xb701, 0xb702
	kind, request := "user", uintptr(getParent)
	if t.Control {
		kind, request = "net", getUserNamespace
	}
	ns, err := unix.Open("/proc/self/ns/"+kind, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(ns)
	return descriptor(func() (int, error) {
		fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(ns), request, 0)
		return int(fd), errnoOf(0, 0, errno)
	})(t)
}
