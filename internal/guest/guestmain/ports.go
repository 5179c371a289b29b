package guestmain

import (
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/guest/census"
)

// dialTimeout limits a connection attempt to a program inside. On a loopback it succeeds or fails
// at once, unless the program's queue is full.
const dialTimeout = 5 * time.Second

// maxReach limits how many addresses are tried for one port. Programs choose on how many they
// listen.
const maxReach = 8

// dialProgram connects to the program that listens on a port, whatever the address: many
// development servers listen only on ::1. It tries 127.0.0.1 first, and reads the kernel's list of
// listeners only if that is refused.
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
