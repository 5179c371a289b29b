package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// elsewhere is an address that is nobody's (RFC 5737): what reaches it was
// routed by somebody.
const elsewhere = "192.0.2.1:9"

// refused opens a connection that must not come about. A silence is as good
// as a refusal.
func refused(ctx context.Context, address string) error {
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
func offline(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp4", elsewhere)
	if err != nil {
		if errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) {
			return nil
		}
		return fmt.Errorf("looking for a way out failed: %w", err)
	}
	_ = conn.Close()
	return errors.New("there is a way out, and none was asked for")
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
