package setup

import "golang.org/x/sys/unix"

const (
	architecture = unix.AUDIT_ARCH_AARCH64
	// foreign is the first number of another interface, such as x32.
	foreign = 1 << 30
)

// machineCalls are the calls that this architecture has besides plainCalls.
var machineCalls = []call{}
