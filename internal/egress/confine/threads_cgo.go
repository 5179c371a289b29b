//go:build cgo

package confine

// The program is linked statically, because it is started again where the
// host's libraries cannot be read.

// #cgo LDFLAGS: -static
import "C"

import "golang.org/x/sys/unix"

// staged reports whether the program is started again to be confined. In a build with C code there
// may be threads that Go's runtime does not know and cannot change. So one thread gives up its
// rights and starts the program again, which ends all others; any later thread is a copy of it.
const staged = true

// change makes a system call on this thread, which then starts the program
// again.
func change(trap, a1, a2, a3 uintptr) error {
	if _, _, errno := unix.RawSyscall(trap, a1, a2, a3); errno != 0 {
		return errno
	}
	return nil
}
