package seccomp

import "golang.org/x/sys/unix"

const (
	// Architecture is the kernel's identifier of this architecture.
	Architecture = unix.AUDIT_ARCH_X86_64
	// Foreign is the first number of x32, a second interface to the same calls, whose numbers a
	// filter of the others would miss.
	Foreign = 1 << 30
)
