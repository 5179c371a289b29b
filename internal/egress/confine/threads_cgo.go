//go:build cgo

package confine

// The program is linked statically, because it restarts where the host's libraries cannot be read.

// #cgo LDFLAGS: -static
import "C"

import "golang.org/x/sys/unix"

// restarts reports whether the program restarts to be confined. A build with cgo may have threads
// that Go's runtime does not know and cannot change. So one thread gives up its rights and restarts
// the program, which ends all others. Later threads are copies of it.
const restarts = true

// change makes a system call on this thread, which then restarts the program.
func change(trap, a1, a2, a3 uintptr) error {
	if _, _, errno := unix.RawSyscall(trap, a1, a2, a3); errno != 0 {
		return errno
	}
	return nil
}
