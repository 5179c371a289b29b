// Package peercred owns what the kernel reports about the process at the other end of a Unix
// socket.
package peercred

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Of returns the credentials of the process at the other end of a connection. For a client this is
// the process that called listen. The process ID is 0 if the process is in a PID namespace that is
// not visible from here.
func Of(c syscall.Conn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var optErr error
	err = raw.Control(func(fd uintptr) {
		cred, optErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, optErr); err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	return cred, nil
}

// Ended reports whether a process has certainly ended. A zombie, whose parent has not waited for
// it, counts as ended. If the state of a process cannot be determined, it counts as running.
func Ended(pid int) bool {
	if pid <= 0 {
		return false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer unix.Close(fd)
	// The descriptor is readable as soon as the process has ended.
	polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(polled, 0)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n == 1
		}
	}
}
