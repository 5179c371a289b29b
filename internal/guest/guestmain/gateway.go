package guestmain

import (
	"context"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/proxyport"
	"github.com/crannog/crannog/internal/guest/relay"
)

// serveGateway serves the proxy and the name server of a sandbox without a network interface. The
// engine passed a reference to the gateway's socket, which programs inside cannot open.
func serveGateway(failed chan<- error) error {
	server, err := proxyport.Listen(func(ctx context.Context) (proxyport.Stream, error) { return dialGateway(ctx) })
	if err != nil {
		return err
	}
	go func() { failed <- server.Serve() }()
	return nil
}

// dialGateway connects to the gateway's socket.
func dialGateway(ctx context.Context) (*net.UnixConn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", guestboot.GatewayFD))
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil //nolint:forcetypeassert // the network is unix
}

// Gateway serves the proxy and the name server of a sandbox without a network interface, on a
// session over standard input and output, until the session ends. It does not return.
func Gateway() {
	if err := carry(); err != nil {
		report(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func carry() error {
	// A program that could trace this one could read what others send.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	session, err := relay.NewOutward(standardStreams{})
	if err != nil {
		return err
	}
	server, err := proxyport.Listen(func(context.Context) (proxyport.Stream, error) { return session.Open() })
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	if err := session.Greet(); err != nil {
		return err
	}
	select {
	case err := <-served:
		return err
	case <-session.Done():
		return nil
	}
}
