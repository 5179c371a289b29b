// Package connlimit limits connections from the network: in total, per address, and by the file
// descriptors that the process needs for its own work.
package connlimit

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// Limits are the limits of a Guard. All but Files must be above zero.
type Limits struct {
	// Total is the maximum number of connections, and PerAddress the maximum per address: an IPv4
	// address, or an IPv6 network of 64 bits, because a client usually has a whole one.
	Total, PerAddress int
	// Reserve is the number of descriptors that network clients cannot use.
	Reserve int
	// Stall is how long a client may read nothing of an answer.
	Stall time.Duration
	// Files is the number of descriptors of the process; zero means its limit.
	Files int
}

// minConnections is the minimum number of connections with which a server can work.
const minConnections = 16

// perConnection is the number of descriptors for a connection: one for itself, and one for a
// connection into a sandbox.
const perConnection = 2

// Errors of refused connections.
var (
	errAddress = fault.New(fault.Exhausted, "connections_address", "this address has too many connections to the server").
			WithHint("close some, or raise the server's setting max_connections_per_address").WithRetryAfter(retryAfter)
	errTotal = fault.New(fault.Unavailable, "connections_full", "the server has reached its maximum of connections").
			WithHint("try again in a few seconds, or raise the server's setting max_connections").WithRetryAfter(retryAfter)
	errFiles = fault.New(fault.Unavailable, "descriptors_low", "the server has no descriptors left for connections").
			WithHint("try again in a few seconds, or raise the server's limit of open files (ulimit -n)").WithRetryAfter(retryAfter)
)

// retryAfter is the time after which a refused client should try again.
const retryAfter = 2 * time.Second

// fitted returns the limits with Total lowered to what the descriptors allow. It returns an error
// if there are too few descriptors.
func (l Limits) fitted() (Limits, error) {
	if l.Total < 1 || l.PerAddress < 1 || l.Reserve < 1 || l.Stall <= 0 {
		return l, fault.New(fault.Invalid, "connections_limits", "the limits of connections must be above zero")
	}
	if l.Files == 0 {
		var files unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
			return l, fmt.Errorf("limit of open files: %w", err)
		}
		l.Files = int(min(files.Cur, 1<<30))
	}
	room := (l.Files - l.Reserve) / perConnection
	if room < minConnections {
		return l, fault.Newf(fault.Exhausted, "descriptors_too_few",
			"%d descriptors of which %d are reserved leave no room for connections", l.Files, l.Reserve).
			WithHint("raise the limit of open files (ulimit -n), or lower reserved_descriptors")
	}
	l.Total = min(l.Total, room)
	return l, nil
}

// firstReserved returns the first descriptor that network clients cannot get. The kernel assigns
// the lowest free descriptor, so the ones from here on stay free as long as no client gets one.
func (l Limits) firstReserved() int { return l.Files - l.Reserve }

// client returns the key under which an address is counted.
func client(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	p, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{} // all such addresses share one count
	}
	return p
}
