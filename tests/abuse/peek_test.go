package abuse_test

import (
	"errors"

	"golang.org/x/sys/unix"
)

// peek returns what a connection has received without consuming it, and does not wait.
func peek(fd int, p []byte) (int, error) {
	n, _, err := unix.Recvfrom(fd, p, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return n, err
}

// isReset reports whether the other end has reset the connection.
func isReset(err error) bool { return errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) }
