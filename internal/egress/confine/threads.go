//go:build !cgo

package confine

import "syscall"

// restarts reports whether the program restarts to be confined.
const restarts = false

// change makes a system call on every thread of the process. Most rights belong to a thread, and
// one thread that keeps them would be enough for an attacker.
func change(trap, a1, a2, a3 uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall(trap, a1, a2, a3); errno != 0 {
		return errno
	}
	return nil
}
