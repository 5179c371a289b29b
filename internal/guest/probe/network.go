package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// elsewhere is an address that is nobody's (RFC 5737): what reaches it was
// routed by somebody.
const elsewhere = "192.0.2.1:9"

// errUnroutable says that the kernel inside knows no way to an address.
var errUnroutable = errors.New("no route")

// route looks for a way to an address without sending anything. It is one
// call into the kernel, where Go's dialer would take milliseconds of a start.
func route(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().Is4() {
		return fmt.Errorf("look for a way to %q: not an address of IPv4 with a port", address)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("look for a way to %s: %w", address, err)
	}
	defer unix.Close(fd)
	switch err := unix.Connect(fd, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}); err {
	case nil:
		return nil
	case unix.ENETUNREACH, unix.EHOSTUNREACH:
		return errUnroutable
	default:
		return fmt.Errorf("look for a way to %s: %w", address, err)
	}
}

// refused opens a connection that must not come about. A silence is as good
// as a refusal.
func refused(ctx context.Context, address string) error {
	if errors.Is(route(address), errUnroutable) {
		return nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", address)
	if err != nil {
		return nil
	}
	// The connection was the breach; how it ends is no matter.
	_ = conn.Close()
	return fmt.Errorf("a connection to %s came about", address)
}

// dropped sends a datagram and wants no answer to it.
func dropped(ctx context.Context, address string) error {
	if errors.Is(route(address), errUnroutable) {
		return nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp4", address)
	if err != nil {
		return nil
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{0}); err != nil {
		return nil
	}
	if end, ok := ctx.Deadline(); ok {
		if err := conn.SetReadDeadline(end); err != nil {
			return err
		}
	}
	var answer [1]byte
	if _, err := conn.Read(answer[:]); err == nil {
		return fmt.Errorf("a datagram to %s was answered", address)
	}
	return nil
}

// offline wants that the kernel inside knows no way to any address outside.
func offline(context.Context) error {
	switch err := route(elsewhere); {
	case errors.Is(err, errUnroutable):
		return nil
	case err == nil:
		return errors.New("there is a way out, and none was asked for")
	default:
		return err
	}
}

// resolver asks the name server of the link, by Go's own code.
var resolver = net.Resolver{PreferGo: true}

func known(ctx context.Context, name string) error {
	// An answer may be lost on a busy machine; a second question costs less
	// than a sandbox.
	var err error
	for range 2 {
		var one context.Context
		var cancel context.CancelFunc
		one, cancel = context.WithTimeout(ctx, patience/2)
		_, err = resolver.LookupNetIP(one, "ip4", name)
		cancel()
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("the allowed name %s has no address: %w", name, err)
}

func unknown(ctx context.Context, name string) error {
	ctx, cancel := context.WithDeadline(ctx, time.Now().Add(patience/2))
	defer cancel()
	if found, err := resolver.LookupNetIP(ctx, "ip4", name); err == nil {
		return fmt.Errorf("the name %s has the address %v", name, found)
	}
	return nil
}
