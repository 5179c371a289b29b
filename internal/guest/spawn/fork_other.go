//go:build !amd64

package spawn

import "syscall"

// fork is not implemented on other architectures.
func fork([]step) (pid int, stopped syscall.Errno, err error) { return 0, 0, syscall.ENOSYS }
