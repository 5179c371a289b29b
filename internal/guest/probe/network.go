package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// unusedAddress is an address of a documentation network (RFC 5737). A connection to it can succeed
// only if something routes it.
const unusedAddress = "192.0.2.1:9"

// errUnroutable is returned if the kernel inside has no route to an address.
var errUnroutable = errors.New("no route")

// route looks up the route to an address without sending packets. It is one system call, where Go's
// dialer would take milliseconds of the boot time.
func route(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().Is4() {
		return fmt.Errorf("route to %q: not an IPv4 address with a port", address)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("route to %s: %w", address, err)
	}
	defer unix.Close(fd)
	switch err := unix.Connect(fd, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}); err {
	case nil:
		return nil
	case unix.ENETUNREACH, unix.EHOSTUNREACH:
		return errUnroutable
	default:
		return fmt.Errorf("route to %s: %w", address, err)
	}
}

// open starts connecting a socket to an address without waiting.
func open(kind int, address string) (fd int, err error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().Is4() {
		return -1, fmt.Errorf("%q is not an IPv4 address with a port", address)
	}
	fd, err = unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("a socket to %s: %w", address, err)
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())})
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		_ = unix.Close(fd) // nothing was sent
		return -1, &unreachedError{err}
	}
	return fd, nil
}

// unreachedError is returned if the kernel reports that an address is unreachable.
type unreachedError struct{ error }

// poll waits until a socket is ready or the context ends.
func poll(ctx context.Context, fd int, event int16) bool {
	for {
		left := tryTimeout
		if end, ok := ctx.Deadline(); ok {
			left = time.Until(end)
		}
		if left <= 0 {
			return false
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: event}}, int(left/time.Millisecond)+1)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}

// errSilent is returned if there was no answer.
var errSilent = errors.New("no answer")

// connect opens a connection and closes it. The status is the error of a refused connection, or
// zero if the connection succeeded.
func connect(ctx context.Context, address string) (status unix.Errno, err error) {
	fd, err := open(unix.SOCK_STREAM, address)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	// Without this, the rest of the connection would stay in the kernel for a minute, and in a
	// snapshot of the sandbox.
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return 0, err
	}
	if !poll(ctx, fd, unix.POLLOUT) {
		return 0, errSilent
	}
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	return unix.Errno(code), err
}

// checkRefused checks that a connection fails. No answer counts as a failure too.
func checkRefused(ctx context.Context, address string) error {
	status, err := connect(ctx, address)
	if _, unreached := errors.AsType[*unreachedError](err); unreached || errors.Is(err, errSilent) || err == nil && status != 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("a connection to %s: %w", address, err)
	}
	return fmt.Errorf("a connection to %s was made", address)
}

// datagram is a datagram that was sent to a destination that it must not reach. fd is negative if
// there was no route.
type datagram struct {
	address string
	fd      int
}

// send sends one byte to an address.
func send(address string) (datagram, error) {
	fd, err := open(unix.SOCK_DGRAM, address)
	if _, unreached := errors.AsType[*unreachedError](err); unreached {
		return datagram{address, -1}, nil
	}
	if err != nil {
		return datagram{}, err
	}
	if _, err := unix.Write(fd, []byte{0}); err != nil {
		_ = unix.Close(fd) // it was not sent
		return datagram{address, -1}, nil
	}
	return datagram{address, fd}, nil
}

// checkUnanswered returns an error if the datagram was answered. It waits for an answer, unless
// something that was sent after the datagram has been settled.
func (d datagram) checkUnanswered(ctx context.Context, settled bool) error {
	if d.fd < 0 {
		return nil
	}
	defer unix.Close(d.fd)
	if !settled {
		ctx, cancel := context.WithTimeout(ctx, tryTimeout)
		defer cancel()
		poll(ctx, d.fd, unix.POLLIN)
	}
	var answer [1]byte
	if _, err := unix.Read(d.fd, answer[:]); err == nil {
		return fmt.Errorf("a datagram to %s was answered", d.address)
	}
	return nil
}

// checkOffline checks that the kernel inside has no route to an outside address.
func checkOffline(context.Context) error {
	switch err := route(unusedAddress); {
	case errors.Is(err, errUnroutable):
		return nil
	case err == nil:
		return errors.New("there is a route out of a sandbox without a network interface")
	default:
		return err
	}
}

// resolver queries the gateway's DNS server with Go's own resolver.
var resolver = &net.Resolver{PreferGo: true}

// checkName checks that a known name has an address, and probes the ports of that name.
func (c Checks) checkName(ctx context.Context, name string) error {
	at, err := lookupKnown(ctx, name)
	if err != nil {
		return err
	}
	if c.Proxy != "" {
		return c.checkPortsThrough(ctx, name)
	}
	for _, what := range c.Reached {
		if port, ok := portOf(name, what); ok {
			err = errors.Join(err, checkReached(ctx, what, netip.AddrPortFrom(at, port)))
		}
	}
	for _, what := range c.Closed {
		if port, ok := portOf(name, what); ok {
			err = errors.Join(err, checkClosed(ctx, what, netip.AddrPortFrom(at, port)))
		}
	}
	return err
}

// portOf returns the port of a name:port, if its name is the given one.
func portOf(name, at string) (uint16, bool) {
	host, text, err := net.SplitHostPort(at)
	if err != nil || host != name {
		return 0, false
	}
	port, err := strconv.ParseUint(text, 10, 16)
	return uint16(port), err == nil
}

// unknownHosts returns the ports that would not be probed, because their host is not among the
// known names.
func (c Checks) unknownHosts() []string {
	return slices.DeleteFunc(slices.Concat(c.Reached, c.Closed), func(at string) bool {
		return slices.ContainsFunc(c.Known, func(name string) bool { _, ok := portOf(name, at); return ok })
	})
}

// checkReached checks that a connection succeeds. It closes the connection at once and sends
// nothing: the gateway dials only after the first byte.
func checkReached(ctx context.Context, what string, at netip.AddrPort) error {
	status, err := connect(ctx, at.String())
	switch {
	case err != nil:
		return fmt.Errorf("no connection to the allowed %s: %w", what, err)
	case status != 0:
		return fmt.Errorf("no connection to the allowed %s: %w", what, status)
	}
	return nil
}

// checkClosed checks that a connection fails.
func checkClosed(ctx context.Context, what string, at netip.AddrPort) error {
	// A refusal arrives as fast as a connection would.
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	if err := checkRefused(ctx, at.String()); err != nil {
		return fmt.Errorf("the closed %s: %w", what, err)
	}
	return nil
}

// lookupKnown returns an address of a name, which must have one.
func lookupKnown(ctx context.Context, name string) (netip.Addr, error) {
	// An answer may be lost or late on a busy machine, and another query costs less than a new
	// sandbox. A query that is refused twice counts as answered.
	for limit, tries := tryTimeout/2, 1; ; limit, tries = 2*limit, tries+1 {
		tryCtx, cancel := context.WithTimeout(ctx, limit)
		found, err := resolver.LookupNetIP(tryCtx, "ip4", name)
		cancel()
		if err == nil && len(found) > 0 {
			return found[0].Unmap(), nil
		}
		failed, ok := errors.AsType[*net.DNSError](err)
		silent := ok && failed.IsTimeout
		if tries > 1 && !silent || ctx.Err() != nil {
			return netip.Addr{}, fmt.Errorf("the allowed name %s has no address: %w", name, err)
		}
	}
}

// checkUnknown checks that a name has no address.
func checkUnknown(ctx context.Context, name string) error {
	ctx, cancel := context.WithDeadline(ctx, time.Now().Add(tryTimeout/2))
	defer cancel()
	if found, err := resolver.LookupNetIP(ctx, "ip4", name); err == nil {
		return fmt.Errorf("the name %s has the address %v", name, found)
	}
	return nil
}
