package runner

import "golang.org/x/sys/unix"

const (
	architecture = unix.AUDIT_ARCH_X86_64
	// foreign is the first number of another interface, such as x32.
	foreign = 0x40000000
)

// machineCalls are the calls that this architecture has besides calls.
var machineCalls = []uint32{unix.SYS_NEWFSTATAT, unix.SYS_EPOLL_WAIT, unix.SYS_POLL, unix.SYS_ARCH_PRCTL}
