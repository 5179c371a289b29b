package confine

import "golang.org/x/sys/unix"

// machineCalls are allowed on this architecture in addition to plainCalls.
var machineCalls = []uint32{unix.SYS_NEWFSTATAT, unix.SYS_EPOLL_WAIT, unix.SYS_ARCH_PRCTL}
