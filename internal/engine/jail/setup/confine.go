package setup

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/landlock"
)

// guestCapabilities lists the capabilities that the guest keeps over its own user namespace if it
// has several IDs: it starts commands as other users, and root in the sandbox owns the sandbox's
// files. None of them reaches a file, process or device of the host. The others would expose more
// of the kernel to an attacker, among them CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW,
// CAP_SYS_PTRACE, CAP_MKNOD and CAP_SYS_CHROOT.
var guestCapabilities = []uint{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID,
	unix.CAP_NET_BIND_SERVICE,
	// CAP_SYS_RESOURCE lets the guest read and set the marks of processes (package lineage). It
	// lifts no limit, because for that the kernel requires the capability on the host.
	unix.CAP_SYS_RESOURCE,
}

// maxOpenFiles bounds the descriptors of each process.
const maxOpenFiles = 65536

// confine drops all rights that the guest and its commands do not need, for all threads of this
// process and everything that they start. The order matters, because each step needs rights that a
// later step drops.
func (r *Request) confine() error {
	for resource, limit := range map[int]uint64{
		unix.RLIMIT_NOFILE: maxOpenFiles, unix.RLIMIT_CORE: 0, unix.RLIMIT_NPROC: uint64(r.Limits.PIDs),
	} {
		limit := unix.Rlimit{Cur: limit, Max: limit}
		var have unix.Rlimit
		if err := unix.Getrlimit(resource, &have); err != nil {
			return fmt.Errorf("limit %d: %w", resource, err)
		}
		limit.Max = min(limit.Max, have.Max) // without root it cannot be raised
		limit.Cur = min(limit.Cur, limit.Max)
		if err := unix.Setrlimit(resource, &limit); err != nil {
			return fmt.Errorf("limit %d: %w", resource, err)
		}
	}
	// Without this, a command with the guest's ID could trace the guest, read the sandbox's tokens
	// in its memory, or reach the host's file of its program through /proc/1/exe.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("dumpable: %w", err)
	}
	// Without this, a set-id program would gain rights.
	if err := onAllThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if !r.Own {
		if err := restrictFiles(); err != nil {
			return fmt.Errorf("landlock: %w", err)
		}
	}
	if err := onAllThreads(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0); err != nil {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	// The bounding set stays: under no_new_privs, a program that root starts has no more rights
	// than its parent.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if r.Users {
		for _, c := range guestCapabilities {
			sets[c/32].Effective |= 1 << (c % 32)
			sets[c/32].Permitted |= 1 << (c % 32)
		}
	}
	if err := onAllThreads(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets[0])), 0); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	mode := unix.SECCOMP_MODE_DISABLED
	if !r.Own {
		if err := filterCalls(); err != nil {
			return fmt.Errorf("seccomp: %w", err)
		}
		mode = unix.SECCOMP_MODE_FILTER
	}
	return verify(sets, mode)
}

// verify reads the state in force back from the kernel, instead of relying on the results of the
// steps.
func verify(want [2]unix.CapUserData, seccomp int) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	if have != want {
		return fmt.Errorf("the capabilities are %v instead of %v", have, want)
	}
	for _, setting := range []struct {
		name         string
		option, want int
	}{
		{"no_new_privs", unix.PR_GET_NO_NEW_PRIVS, 1}, {"dumpable", unix.PR_GET_DUMPABLE, 0}, {"seccomp", unix.PR_GET_SECCOMP, seccomp},
	} {
		if got, err := unix.PrctlRetInt(setting.option, 0, 0, 0, 0); err != nil || got != setting.want {
			return errors.Join(fmt.Errorf("%s is %d instead of %d", setting.name, got, setting.want), err)
		}
	}
	return nil
}

// onAllThreads makes a system call on each thread, because rights belong to threads.
func onAllThreads(call, a, b, c uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall6(call, a, b, c, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// restrictFiles makes Landlock refuse access to devices. With any rule set, Landlock also refuses
// every change of mounts, in case the system call filter has a gap. It restricts nothing else,
// because debuggers and daemons write below /proc. On a kernel without Landlock, the other layers
// remain.
func restrictFiles() error {
	version, err := landlock.Version()
	if err != nil || version < landlock.Refer {
		return err // an older version would refuse every move between directories
	}
	ruleset, err := landlock.New(unix.LANDLOCK_ACCESS_FS_MAKE_CHAR|unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK|unix.LANDLOCK_ACCESS_FS_REFER, 0)
	if err != nil {
		return err
	}
	defer ruleset.Close()
	if err := ruleset.Allow("/", unix.LANDLOCK_ACCESS_FS_REFER); err != nil {
		return err
	}
	return ruleset.Restrict(onAllThreads)
}
