package confine

import "golang.org/x/sys/unix"

const (
	architecture = unix.AUDIT_ARCH_X86_64
	// x32 marks the calls of another set of numbers.
	x32 = 0x40000000
)

// machineCalls are what this architecture has besides plainCalls.
var machineCalls = []uint32{unix.SYS_NEWFSTATAT, unix.SYS_EPOLL_WAIT, unix.SYS_ARCH_PRCTL}
