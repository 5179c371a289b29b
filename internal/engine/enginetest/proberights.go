package enginetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/testkit/capability"
)

const (
	ownMounts = "the mount is in its own namespace, of files that the sandbox already has"
	ownRights = "root of its own namespace is the sandbox's user"
)

// mountProbes holds attempts to change which files are visible.
var mountProbes = map[string]probe{
	"mount-tmpfs":          {try: withMountPoint(func(dir string) error { return unix.Mount("tmpfs", dir, "tmpfs", 0, "") }), allowed: map[persona]string{asOwner: ownMounts}},
	"mount-disk":           {try: withMountPoint(func(dir string) error { return unix.Mount("/dev/null", dir, "ext4", 0, "") })},
	"cgroup-release-agent": {try: withMountPoint(openReleaseAgent), lacks: []syscall.Errno{unix.ENODEV}},
	"remount-root":         {try: func() error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "") }, allowed: map[persona]string{asOwner: ownMounts}},
	"umount":               {try: func() error { return unix.Unmount("/dev/shm", unix.MNT_DETACH) }, allowed: map[persona]string{asOwner: ownMounts}},
	"pivot-root":           {try: syscallProbe(unix.SYS_PIVOT_ROOT, badAddress, badAddress), allowed: map[persona]string{asOwner: ownMounts}},
	"open-tree": {try: descriptor(func() (int, error) {
		return unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	}), lacks: noSuchCall, allowed: map[persona]string{asOwner: ownMounts}},
	"fsopen":        {try: descriptor(func() (int, error) { return unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC) }), lacks: noSuchCall, allowed: map[persona]string{asOwner: ownMounts}},
	"move-mount":    {try: syscallProbe(unix.SYS_MOVE_MOUNT, badFD, badAddress, badFD, badAddress, 0), lacks: noSuchCall, allowed: map[persona]string{asOwner: ownMounts}},
	"mount-setattr": {try: syscallProbe(unix.SYS_MOUNT_SETATTR, badFD, badAddress, 0, badAddress, 32), lacks: noSuchCall},
}

// withMountPoint returns an attempt that runs try on a new directory, and then unmounts what it has
// mounted there.
func withMountPoint(try func(dir string) error) func() error {
	return func() error {
		dir, err := os.MkdirTemp("/tmp", "crannog-probe-")
		if err != nil {
			return fmt.Errorf("cannot create a directory for the attempt: %v", err)
		}
		defer os.Remove(dir)
		defer unix.Unmount(dir, unix.MNT_DETACH)
		return try(dir)
	}
}

// openReleaseAgent opens the file with the name of the program that the machine's kernel runs when
// a control group becomes empty. The hierarchy is new and has no controllers, so the machine's own
// groups are not affected.
func openReleaseAgent(dir string) error {
	if err := unix.Mount("cgroup", dir, "cgroup", 0, "none,name=crannog-probe"); err != nil {
		return err
	}
	return openProbe(os.O_WRONLY, filepath.Join(dir, "release_agent"))()
}

// initProbes holds attacks on the first process.
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
	// A process that is already in the namespace cannot join it, and gets another error.
	"join-init-user": {try: joinInitUser, refusals: []syscall.Errno{unix.EINVAL}},
}

// initPID returns 1, or in a control the PID of another process, because the machine's own PID 1
// must not be attacked and may be protected from root.
func initPID() int {
	var n int
	if _, err := fmt.Sscan(os.Getenv(traceeEnv), &n); err == nil {
		return n
	}
	return 1
}

// initFile returns the path of a file of the first process in /proc.
func initFile(name string) string { return fmt.Sprintf("/proc/%d/%s", initPID(), name) }

// openInit returns an attempt that opens a file of the first process.
func openInit(name string) func() error {
	return func() error { return openProbe(os.O_RDONLY, initFile(name))() }
}

// traceInit attaches to the first process as a debugger does.
func traceInit() error {
	if err := errnoOf(unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(initPID()), 0, 0, 0, 0)); err != nil {
		return err
	}
	return errnoOf(unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(initPID()), 0, 0, 0, 0))
}

// copyInitMemory reads memory of the first process at an unmapped address. A process without
// permission is refused before the address is checked.
func copyInitMemory() error {
	to := make([]byte, 8)
	local := []unix.Iovec{{Base: &to[0]}}
	local[0].SetLen(len(to))
	_, err := unix.ProcessVMReadv(initPID(), local, []unix.RemoteIovec{{Base: badAddress, Len: len(to)}}, 0)
	return err
}

// takeInitFile requests a descriptor of the first process that is not open. A process without
// permission is refused before the number is checked.
func takeInitFile() error {
	pidfd, err := unix.PidfdOpen(initPID(), 0)
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	return descriptor(func() (int, error) { return unix.PidfdGetfd(pidfd, 1<<20, 0) })()
}

// joinInit returns an attempt that joins a namespace of the first process.
func joinInit(kind string, flag int) func() error {
	return func() error {
		// A thread that shares its root with another thread cannot join a mount namespace.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("cannot prepare a thread: %v", err)
		}
		fd, err := unix.Open(initFile("ns/"+kind), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Setns(fd, flag)
	}
}

// joinInitUser joins the user namespace of the first process, with Python because a process with
// threads cannot do so. In the control, that process is in a child of the host's user namespace,
// because no process can join its own.
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

// noSuchUser lists the error of setresuid in a user namespace without root.
var noSuchUser = []syscall.Errno{unix.EINVAL}

// rightProbes holds attempts to gain more rights than the process has.
var rightProbes = map[string]probe{
	"raise-capability": {try: func() error { return capability.Raise(false) }, allowed: map[persona]string{asOwner: ownRights}},
	"raise-ambient":    {try: raiseAmbient, allowed: map[persona]string{asOwner: ownRights}},
	"become-root": {try: func() error { return setUsers(0, 0, 0) }, allowed: map[persona]string{
		asRoot: "it is root inside", asOwner: ownRights,
	}, refusals: noSuchUser},
	"regain-root": {try: regainRoot, allowed: map[persona]string{asOwner: ownRights}, refusals: noSuchUser},
	"map-users":   {try: mapUsers},
}

// raiseAmbient tries to add an ambient capability.
func raiseAmbient() error {
	// An error of this call makes the next one fail: only a permitted and inheritable capability
	// can be ambient.
	_ = capability.Raise(true)
	return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_ADMIN, 0, 0)
}

// setUsers sets the real, effective and saved user ID of this thread.
func setUsers(user, effective, saved uintptr) error {
	return errnoOf(unix.RawSyscall(unix.SYS_SETRESUID, user, effective, saved))
}

// regainRoot drops root and tries to become root again. The control keeps root as its saved user
// ID, as a set-id program does, and succeeds.
func regainRoot() error {
	const user = 1000
	saved := uintptr(user)
	if os.Getenv(controlEnv) != "" {
		saved = 0
	}
	if err := setUsers(user, user, saved); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("cannot drop root: %v", err)
	}
	return setUsers(0, 0, 0)
}

// mapUsers creates a user namespace in which all user IDs are mapped.
func mapUsers() error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{Size: 65536}},
	}
	return cmd.Run()
}
