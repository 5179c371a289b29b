package confine

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// secureBits prevent root's programs from gaining capabilities because they are root. They are
// defined in the kernel's securebits.h: no root, no raising of ambient capabilities, and a lock on
// each.
const secureBits = 1<<0 | 1<<1 | 1<<6 | 1<<7

// setSecureBits sets the secure bits if the process has the privilege.
func (b *Process) setSecureBits(*Report) error {
	have, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	if err != nil {
		return err
	}
	err = change(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, uintptr(have)|secureBits, 0)
	b.secured = err == nil
	if errors.Is(err, unix.EPERM) {
		return nil // the process has no privileges to gain
	}
	return err
}

// dropBounding empties the bounding set of capabilities. It needs CAP_SETPCAP, so it precedes the
// change of user.
func (b *Process) dropBounding(*Report) error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		set, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil {
			break // the kernel has fewer capabilities
		}
		if set == 0 {
			continue
		}
		if err := change(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); errors.Is(err, unix.EPERM) {
			return nil // the process has no privileges to gain
		} else if err != nil {
			return err
		}
	}
	b.bounded = true
	return nil
}

// dropCapabilities empties the other sets.
func dropCapabilities(*Report) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := change(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0); err != nil {
		return err
	}
	if err := change(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("ambient set: %w", err)
	}
	return nil
}

// noNewPrivileges prevents programs from gaining rights by execve.
func noNewPrivileges(*Report) error {
	return change(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
}

// hideOtherUsers makes the process undumpable: no core file, no debugger of the same user and no
// /proc/PID/mem, all of which would reveal its secrets.
func hideOtherUsers() error {
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// verify reads the state back from the kernel instead of relying on the results of the steps.
func verify(report Report) (Report, error) {
	report.UID = unix.Geteuid()
	var err error
	if report.Capabilities, err = capabilities(); err != nil {
		return report, err
	}
	for _, state := range []struct {
		option int
		set    func(int)
	}{
		{unix.PR_GET_NO_NEW_PRIVS, func(n int) { report.NoNewPrivs = n == 1 }},
		{unix.PR_GET_DUMPABLE, func(n int) { report.Dumpable = n != 0 }},
		{unix.PR_GET_SECCOMP, func(n int) { report.Seccomp = n == unix.SECCOMP_MODE_FILTER }},
	} {
		n, err := unix.PrctlRetInt(state.option, 0, 0, 0, 0)
		if err != nil {
			return report, fmt.Errorf("confine: read back: %w", err)
		}
		state.set(n)
	}
	if report.Capabilities || !report.NoNewPrivs || report.Dumpable || !report.Seccomp {
		return report, fmt.Errorf("confine: the kernel accepted every step, and reports another state: %+v", report)
	}
	return report, nil
}

// capabilities reports whether the process still has a capability.
func capabilities() (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return true, fmt.Errorf("confine: read capabilities: %w", err)
	}
	return have != [2]unix.CapUserData{}, nil
}
