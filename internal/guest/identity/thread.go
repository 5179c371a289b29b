package identity

import (
	"fmt"
	"syscall"
	"unsafe"
)

// keep leaves an ID unchanged in the setres calls.
const keep = ^uintptr(0)

// assume gives the calling thread the effective rights of u. It uses raw calls because the
// library's change all threads of the process. The real and saved IDs stay root's, so that it can
// change back, and so that the user's own processes cannot send signals to the thread.
func assume(u User) error {
	if err := setGroups(u.Groups); err != nil {
		return err
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESGID, keep, uintptr(u.GID), keep); errno != 0 {
		return fmt.Errorf("setresgid: %w", errno)
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, uintptr(u.UID), keep); errno != 0 {
		return fmt.Errorf("setresuid: %w", errno)
	}
	return nil
}

// restoreThread makes the calling thread root's again.
func restoreThread() error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, 0, keep); errno != 0 {
		return fmt.Errorf("setresuid: %w", errno)
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESGID, keep, 0, keep); errno != 0 {
		return fmt.Errorf("setresgid: %w", errno)
	}
	return setGroups(nil)
}

func setGroups(groups []uint32) error {
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); errno != 0 {
		return fmt.Errorf("setgroups: %w", errno)
	}
	return nil
}
