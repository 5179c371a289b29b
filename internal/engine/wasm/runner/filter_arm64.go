package runner

import "golang.org/x/sys/unix"

// machineCalls are the calls that this architecture has besides calls.
var machineCalls = []uint32{unix.SYS_FSTATAT}
