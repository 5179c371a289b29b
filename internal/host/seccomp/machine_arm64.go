package seccomp

import "golang.org/x/sys/unix"

const (
	// Architecture is the kernel's identifier of this architecture.
	Architecture = unix.AUDIT_ARCH_AARCH64
	// Foreign is the first number of another call interface of this architecture, such as x32.
	Foreign = 1 << 30
)
