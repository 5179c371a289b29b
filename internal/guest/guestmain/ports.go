package guestmain

import (
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/guest/census"
)

// dialTimeout limits a connection attempt to a program inside. On the loopback interface it
// succeeds or fails at once, unless the program's backlog is full.
const dialTimeout = 5 * time.Second

// maxReach limits the number of addresses that are tried for one port. Programs control how many
// there are.
const maxReach = 8

// dialProgram connects to the program that listens on a port, on any address, because many
// development servers listen only on ::1. It tries 127.0.0.1 first and reads the kernel's list of
// listeners only if that fails.
func dialProgram(port int) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.Dial("tcp4", address(port))
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return conn, err
	}
	reach := census.Reach("/proc", port)
	for _, to := range reach[:min(len(reach), maxReach)] {
		if conn, err := dialer.Dial("tcp", to.String()); err == nil {
			return conn, nil
		}
	}
	return nil, err
}
