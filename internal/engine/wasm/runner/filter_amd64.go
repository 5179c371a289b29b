package runner

import "golang.org/x/sys/unix"

// machineCalls lists the calls that only this architecture has. They are allowed with any
// arguments.
var machineCalls = []uint32{unix.SYS_NEWFSTATAT, unix.SYS_EPOLL_WAIT, unix.SYS_POLL, unix.SYS_ARCH_PRCTL}
