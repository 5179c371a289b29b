package seccomp

import "golang.org/x/sys/unix"

const (
	// Architecture is the kernel's identifier of this architecture.
	Architecture = unix.AUDIT_ARCH_AARCH64
	// Foreign is above every number of a call. arm64 has no second interface like x32 of amd64, but
	// the filter's rule is the same on both.
	Foreign = 1 << 30
)
