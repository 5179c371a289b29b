package setup

import "golang.org/x/sys/unix"

const (
	architecture = unix.AUDIT_ARCH_AARCH64
	// foreign begins the numbers that are another interface's, as x32's.
	foreign = 1 << 30
)

// machineCalls are what this architecture has besides plainCalls.
var machineCalls = []call{}
