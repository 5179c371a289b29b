package runner

import "golang.org/x/sys/unix"

// machineCalls are the calls that only this architecture has.
var machineCalls = []uint32{unix.SYS_FSTATAT}
