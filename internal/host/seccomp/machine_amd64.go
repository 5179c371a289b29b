package seccomp

import "golang.org/x/sys/unix"

const (
	// Architecture is this machine as the kernel names it to a filter.
	Architecture = unix.AUDIT_ARCH_X86_64
	// Foreign is the first number of another interface of the same machine, such as x32.
	Foreign = 1 << 30
)
