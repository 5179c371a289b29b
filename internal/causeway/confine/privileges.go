package confine

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// onAllThreads makes a system call on every thread of the process: most
// rights belong to a thread, and one that kept them would be enough.
func onAllThreads(trap, a1, a2, a3 uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall(trap, a1, a2, a3)
	if errno == syscall.ENOTSUP {
		return errors.New("a binary with C code cannot change all of its threads: build with CGO_ENABLED=0")
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// dropBounding empties the set that bounds what a program may gain. Only who
// may gain something can, and must: it comes before the change of user.
func dropBounding(Rules, *Report) error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		set, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil {
			return nil // a kernel that knows fewer
		}
		if set == 0 {
			continue
		}
		if err := onAllThreads(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); errors.Is(err, unix.EPERM) {
			return nil // it has nothing to gain with
		} else if err != nil {
			return err
		}
	}
	return nil
}

// dropCapabilities empties the other sets.
func dropCapabilities(Rules, *Report) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := onAllThreads(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0); err != nil {
		return err
	}
	if err := onAllThreads(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("ambient set: %w", err)
	}
	return nil
}

// closeProcess makes the process unreadable: no core file, no debugger of the
// same user, no /proc/PID/mem, which would all show the secrets that it holds.
func closeProcess(Rules, *Report) error {
	if err := onAllThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// verify asks the kernel what holds, rather than believing that each step did
// what it was told.
func verify(report Report) (Report, error) {
	report.UID = unix.Geteuid()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return report, fmt.Errorf("confine: read capabilities: %w", err)
	}
	report.Capabilities = have != [2]unix.CapUserData{}
	for _, question := range []struct {
		option int
		set    func(int)
	}{
		{unix.PR_GET_NO_NEW_PRIVS, func(n int) { report.NoNewPrivs = n == 1 }},
		{unix.PR_GET_DUMPABLE, func(n int) { report.Dumpable = n != 0 }},
		{unix.PR_GET_SECCOMP, func(n int) { report.Seccomp = n == unix.SECCOMP_MODE_FILTER }},
	} {
		n, err := unix.PrctlRetInt(question.option, 0, 0, 0, 0)
		if err != nil {
			return report, fmt.Errorf("confine: read back: %w", err)
		}
		question.set(n)
	}
	if report.Capabilities || !report.NoNewPrivs || report.Dumpable || !report.Seccomp {
		return report, fmt.Errorf("confine: the kernel accepted every step and says otherwise: %+v", report)
	}
	return report, nil
}
