package confine

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// changeUser changes root to a user who owns nothing.
func (b *Process) changeUser(report *Report) error {
	if unix.Geteuid() != 0 {
		return nil
	}
	uid := b.rules.UID
	if uid <= 0 {
		return errors.New("root has no user to switch to")
	}
	if !mapped("/proc/self/uid_map", uid) || !mapped("/proc/self/gid_map", uid) {
		report.Notes = append(report.Notes, fmt.Sprintf("this user namespace has no user %d, so the process stays its root, without capabilities", uid))
		return nil
	}
	if restarts {
		if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	// Drop the groups first, because only root may change them.
	id := uintptr(uid)
	for _, call := range [][4]uintptr{{unix.SYS_SETGROUPS}, {unix.SYS_SETRESGID, id, id, id}, {unix.SYS_SETRESUID, id, id, id}} {
		if err := change(call[0], call[1], call[2], call[3]); err != nil {
			return err
		}
	}
	if restarts {
		return openAsOwner()
	}
	return nil
}

// openAsOwner makes this thread open files as root, or as the owner of a program that only its
// owner may execute, until the program restarts; the kernel then resets it to the user. The change
// of user also makes the kernel mark the new process as undumpable. Otherwise another process of
// the user could take it over before it has protected itself.
func openAsOwner() error {
	var program unix.Stat_t
	if err := unix.Stat(self, &program); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	change := [2]unix.CapUserData{{Effective: 1 << unix.CAP_SETUID, Permitted: 1 << unix.CAP_SETUID}}
	if err := unix.Capset(&header, &change[0]); err != nil {
		return err
	}
	owner := uint32(0)
	if program.Mode&0o001 == 0 {
		owner = program.Uid
	}
	if filesUser(owner) != owner {
		return fmt.Errorf("it cannot open files as %d, the owner of the program", owner)
	}
	return unix.Prctl(unix.PR_SET_KEEPCAPS, 0, 0, 0, 0)
}

// filesUser tries to make this thread open files as a user, and returns the user that is then in
// effect.
func filesUser(uid uint32) uint32 {
	// The call returns the previous user, even if it changes nothing.
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, uintptr(uid), 0, 0)
	now, _, _ := unix.RawSyscall(unix.SYS_SETFSUID, noID, 0, 0)
	return uint32(now)
}

// noID is a user ID that the kernel never accepts.
const noID = uintptr(^uint32(0))

// mapped reports whether a user namespace maps an ID. A map that cannot be read counts as complete,
// so that the change is attempted and fails visibly.
func mapped(path string, id int) bool {
	data, err := os.ReadFile(path)
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(data)) {
		var inside, outside, count int
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err == nil && id >= inside && id-inside < count {
			return true
		}
	}
	return false
}
