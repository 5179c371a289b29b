//go:build !amd64

package spawn

import "syscall"

// fork knows no other processor.
func fork([]step) (pid int, stopped syscall.Errno, err error) { return 0, 0, syscall.ENOSYS }
