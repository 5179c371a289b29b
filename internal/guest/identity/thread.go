package identity

import (
	"fmt"
	"syscall"
	"unsafe"
)

// unchanged leaves an ID unchanged in the setres calls.
const unchanged = ^uintptr(0)

// switchThread gives the calling thread the effective rights of u. It uses raw system calls,
// because the library's functions change all threads. The real and saved IDs remain those of root.
// So the thread can switch back, and processes of the user cannot send signals to it.
func switchThread(u User) error {
	if err := setGroups(u.Groups); err != nil {
		return err
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESGID, unchanged, uintptr(u.GID), unchanged); errno != 0 {
		return fmt.Errorf("setresgid: %w", errno)
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, unchanged, uintptr(u.UID), unchanged); errno != 0 {
		return fmt.Errorf("setresuid: %w", errno)
	}
	return nil
}

// restoreThread switches the calling thread back to root.
func restoreThread() error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, unchanged, 0, unchanged); errno != 0 {
		return fmt.Errorf("setresuid: %w", errno)
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESGID, unchanged, 0, unchanged); errno != 0 {
		return fmt.Errorf("setresgid: %w", errno)
	}
	return setGroups(nil)
}

// setGroups sets the supplementary groups of the calling thread.
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
