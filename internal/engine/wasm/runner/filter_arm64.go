package runner

import "golang.org/x/sys/unix"

const (
	architecture = unix.AUDIT_ARCH_AARCH64
	// foreign is above all numbers of this architecture.
	foreign = 0x40000000
)

// machineCalls are the calls that this architecture has besides calls.
var machineCalls = []uint32{unix.SYS_FSTATAT}
