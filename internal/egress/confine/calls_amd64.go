package confine

import "golang.org/x/sys/unix"

const (
	architecture = unix.AUDIT_ARCH_X86_64
	// x32 marks system calls of the x32 ABI.
	x32 = 0x40000000
)

// machineCalls are allowed on this architecture in addition to plainCalls.
var machineCalls = []uint32{unix.SYS_NEWFSTATAT, unix.SYS_EPOLL_WAIT, unix.SYS_ARCH_PRCTL}
