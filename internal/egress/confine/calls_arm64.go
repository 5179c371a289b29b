package confine

import "golang.org/x/sys/unix"

// machineCalls are allowed on this architecture in addition to plainCalls.
var machineCalls = []uint32{unix.SYS_FSTATAT}
