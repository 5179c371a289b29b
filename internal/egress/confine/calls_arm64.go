package confine

import (
	"math"

	"golang.org/x/sys/unix"
)

const (
	architecture = unix.AUDIT_ARCH_AARCH64
	x32          = math.MaxUint32
)

// machineCalls are allowed on this architecture in addition to plainCalls.
var machineCalls = []uint32{unix.SYS_FSTATAT}
