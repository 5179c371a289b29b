package enginetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	ownMounts = "mounts of its own namespace, of what the box has already"
	ownRights = "root of its own namespace is the box's user"
)

// mountProbes try to change which files are visible.
var mountProbes = map[string]probe{
	"mount-tmpfs":          {try: onScratch(func(dir string) error { return unix.Mount("tmpfs", dir, "tmpfs", 0, "") }), allowed: map[persona]string{asOwner: ownMounts}},
	"mount-disk":           {try: onScratch(func(dir string) error { return unix.Mount("/dev/null", dir, "ext4", 0, "") })},
	"cgroup-release-agent": {try: onScratch(releaseAgent), lacks: []syscall.Errno{unix.ENODEV}},
	"remount-root":         {try: func() error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "") }, allowed: map[persona]string{asOwner: ownMounts}},
	"umount":               {try: func() error { return unix.Unmount("/dev/shm", unix.MNT_DETACH) }, allowed: map[persona]string{asOwner: ownMounts}},
	"pivot-root":           {try: syscallProbe(unix.SYS_PIVOT_ROOT, bad, bad), allowed: map[persona]string{asOwner: ownMounts}},
	"open-tree": {try: descriptor(func() (int, error) {
		return unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	}), lacks: noSuchCall, allowed: map[persona]string{asOwner: ownMounts}},
	"fsopen":        {try: descriptor(func() (int, error) { return unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC) }), lacks: noSuchCall, allowed: map[persona]string{asOwner: ownMounts}},
	"move-mount":    {try: syscallProbe(unix.SYS_MOVE_MOUNT, none, bad, none, bad, 0), lacks: noSuchCall, allowed: map[persona]string{asOwner: ownMounts}},
	"mount-setattr": {try: syscallProbe(unix.SYS_MOUNT_SETATTR, none, bad, 0, bad, 32), lacks: noSuchCall},
}

// onScratch makes an attempt on a directory of its own, and unmounts what is mounted there.
func onScratch(try func(dir string) error) func() error {
	return func() error {
		dir, err := os.MkdirTemp("/tmp", "crannog-probe-")
		if err != nil {
			return fmt.Errorf("there is no directory to try it on: %v", err)
		}
		defer os.Remove(dir)
		defer unix.Unmount(dir, unix.MNT_DETACH)
		return try(dir)
	}
}

// releaseAgent opens the file that names a program which the machine's kernel
// runs when a group is empty. The hierarchy is one of its own without any
// controller, so nothing of the machine's is touched.
func releaseAgent(dir string) error {
	if err := unix.Mount("cgroup", dir, "cgroup", 0, "none,name=crannog-probe"); err != nil {
		return err
	}
	return openProbe(os.O_WRONLY, filepath.Join(dir, "release_agent"))()
}

// initProbes attack the first process.
var initProbes = map[string]probe{
	"trace-guest":           {try: traceInit},
	"read-init-memory":      {try: openInit("mem")},
	"copy-init-memory":      {try: copyInitMemory, lacks: noSuchCall},
	"take-init-file":        {try: takeInitFile, lacks: noSuchCall},
	"read-init-environment": {try: openInit("environ")},
	"join-init-mounts":      {try: joinInit("mnt", unix.CLONE_NEWNS)},
	"join-init-network":     {try: joinInit("net", unix.CLONE_NEWNET)},
	"join-init-names":       {try: joinInit("uts", unix.CLONE_NEWUTS)},
	"join-init-ipc":         {try: joinInit("ipc", unix.CLONE_NEWIPC)},
	"join-init-pids":        {try: joinInit("pid", unix.CLONE_NEWPID)},
	"join-init-cgroup":      {try: joinInit("cgroup", unix.CLONE_NEWCGROUP)},
	// A process that is in it already cannot join it, and gets another error.
	"join-init-user": {try: joinInitUser, refusals: []syscall.Errno{unix.EINVAL}},
}

// initPID returns PID 1, or in a control the PID of a process that was made for it.
// The machine's own PID 1 must not be experimented on, and may be guarded from root.
func initPID() int {
	var n int
	if _, err := fmt.Sscan(os.Getenv(traceeEnv), &n); err == nil {
		return n
	}
	return 1
}

func initFile(name string) string { return fmt.Sprintf("/proc/%d/%s", initPID(), name) }

func openInit(name string) func() error {
	return func() error { return openProbe(os.O_RDONLY, initFile(name))() }
}

func traceInit() error {
	if err := errnoOf(unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(initPID()), 0, 0, 0, 0)); err != nil {
		return err
	}
	return errnoOf(unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(initPID()), 0, 0, 0, 0))
}

// copyInitMemory asks for memory at an address where there is none. A process that may not ask is
// refused first.
func copyInitMemory() error {
	to := make([]byte, 8)
	local := []unix.Iovec{{Base: &to[0]}}
	local[0].SetLen(len(to))
	_, err := unix.ProcessVMReadv(initPID(), local, []unix.RemoteIovec{{Base: bad, Len: len(to)}}, 0)
	return err
}

// takeInitFile asks for a descriptor that is not open, for the same reason.
func takeInitFile() error {
	pidfd, err := unix.PidfdOpen(initPID(), 0)
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	return descriptor(func() (int, error) { return unix.PidfdGetfd(pidfd, 1<<20, 0) })()
}

func joinInit(kind string, flag int) func() error {
	return func() error {
		// A thread that shares its root with another thread cannot join a mount namespace.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("a thread cannot be readied: %v", err)
		}
		fd, err := unix.Open(initFile("ns/"+kind), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Setns(fd, flag)
	}
}

// joinInitUser joins a user namespace, which a process with threads cannot. The
// control joins one below the host's, because no process can join its own.
func joinInitUser() error {
	const line = `import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
try:
    fd = os.open("/proc/%s/ns/user" % sys.argv[1], os.O_RDONLY)
except OSError as e:
    sys.exit(e.errno)
sys.exit(0 if libc.setns(fd, 0x10000000) == 0 else ctypes.get_errno())`
	err := exec.Command("/usr/bin/python3", "-c", line, fmt.Sprint(initPID())).Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return syscall.Errno(exit.ExitCode())
	}
	return err
}

// noSuchUser is the answer of a user namespace in which there is no root.
var noSuchUser = []syscall.Errno{unix.EINVAL}

// rightProbes ask for more rights than the process has.
var rightProbes = map[string]probe{
	"raise-capability": {try: func() error { return raise(false) }, allowed: map[persona]string{asOwner: ownRights}},
	"raise-ambient":    {try: raiseAmbient, allowed: map[persona]string{asOwner: ownRights}},
	"become-root": {try: func() error { return setUsers(0, 0, 0) }, allowed: map[persona]string{
		asRoot: "it is root inside", asOwner: ownRights,
	}, refusals: noSuchUser},
	"regain-root": {try: regainRoot, allowed: map[persona]string{asOwner: ownRights}, refusals: noSuchUser},
	"map-users":   {try: mapUsers},
}

// raise adds CAP_SYS_ADMIN to the capabilities that the thread may have, or to those that a program
// which it starts inherits.
func raise(inheritable bool) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return err
	}
	have[0].Permitted |= 1 << unix.CAP_SYS_ADMIN
	have[0].Effective |= 1 << unix.CAP_SYS_ADMIN
	if inheritable {
		have[0].Inheritable |= 1 << unix.CAP_SYS_ADMIN
	}
	return unix.Capset(&header, &have[0])
}

func raiseAmbient() error {
	// The answer to this call is the answer to the next: only a capability that is permitted and
	// inheritable can be ambient.
	_ = raise(true)
	return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_ADMIN, 0, 0)
}

func setUsers(user, effective, saved uintptr) error {
	return errnoOf(unix.RawSyscall(unix.SYS_SETRESUID, user, effective, saved))
}

// regainRoot gives up root and tries to become root again. The control keeps root as its saved user
// ID, as a set-id program does, and succeeds.
func regainRoot() error {
	const user = 1000
	saved := uintptr(user)
	if os.Getenv(controlEnv) != "" {
		saved = 0
	}
	if err := setUsers(user, user, saved); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("root cannot be given up: %v", err)
	}
	return setUsers(0, 0, 0)
}

// mapUsers makes a user namespace with the numbers of all users.
func mapUsers() error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{Size: 65536}},
	}
	return cmd.Run()
}
