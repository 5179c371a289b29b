package guestmain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/relay"
)

// serveRelay connects streams from outside with ports inside. It passes streams to the guest's own
// servers directly, and connects to other programs over the loopback interface. The engine opens
// streams through guestChannel or direct, unless they are nil. Other processes of the host use
// guestboot.RelayPort.
func serveRelay(guestChannel *channel, direct net.Listener, tracked *streams, servers map[int]*http.Server, machine Machine, failed chan<- error) error {
	listener, err := listen(guestboot.RelayPort)
	if err != nil {
		return err
	}
	in := guestPorts{}
	for port, server := range servers {
		listener := newPipes()
		in[port] = listener
		go func() { failed <- server.Serve(listener) }()
	}
	if guestChannel != nil {
		var inside relay.Inside = in
		if machine != nil {
			inside = markedPorts{in, machine}
		}
		go func() { failed <- relay.ServeChannel(guestChannel.read, guestChannel.write, inside) }()
	}
	if direct != nil {
		go func() { failed <- relay.ServeDirect(trackingListener{direct, tracked}, in) }()
	}
	go func() { failed <- relay.Serve(trackingListener{listener, tracked}, in.open) }()
	return nil
}

// guestPorts has the ports that the guest itself serves. It implements relay.Inside.
type guestPorts map[int]*pipes

// Serves implements relay.Inside.
func (in guestPorts) Serves(port int) bool { return in[port] != nil }

// Take implements relay.Inside.
func (in guestPorts) Take(port int, stream net.Conn) bool { return in[port].take(stream) == nil }

// Open implements relay.Inside.
func (in guestPorts) Open(port int) (net.Conn, error) {
	// The relay must not be reachable through itself: the inner stream would then seem to come from
	// the engine.
	if port == guestboot.RelayPort || port == 0 {
		return nil, errors.New("no such port")
	}
	return dialProgram(port)
}

// open opens a stream that cannot be passed to a server directly.
func (in guestPorts) open(port int) (net.Conn, error) {
	if listener := in[port]; listener != nil {
		return listener.open()
	}
	return in.Open(port)
}

// channel has the two pipes between the engine and the guest. They survive when the sandbox is
// restored on another host, which then sends a greeting.
type channel struct{ read, write *os.File }

// givenChannel returns the channel that the engine passed to the guest.
func givenChannel() (*channel, error) {
	for fd := guestboot.ChannelFD; fd <= guestboot.ChannelFD+1; fd++ {
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, fmt.Errorf("channel: %w", err)
		}
	}
	return &channel{
		read:  os.NewFile(guestboot.ChannelFD, "channel"),
		write: os.NewFile(guestboot.ChannelFD+1, "channel"),
	}, nil
}

// givenListener returns the socket through which the engine opens streams.
func givenListener() (net.Listener, error) {
	file := os.NewFile(guestboot.ChannelFD, "listener")
	defer file.Close() // FileListener has its own copy
	listener, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("listener: %w", err)
	}
	return listener, nil
}

// address returns the loopback address of a port.
func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// listen listens on a port of the loopback interface.
func listen(port int) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", address(port))
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address(port), err)
	}
	return listener, nil
}

// pipes is a listener for in-memory connections.
type pipes struct {
	accepts chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func newPipes() *pipes {
	return &pipes{accepts: make(chan net.Conn), closed: make(chan struct{})}
}

// open connects to the server.
func (p *pipes) open() (net.Conn, error) {
	client, server := net.Pipe()
	if err := p.take(server); err != nil {
		return nil, err
	}
	return client, nil
}

// take passes a connection to the server.
func (p *pipes) take(conn net.Conn) error {
	select {
	case p.accepts <- conn:
		return nil
	case <-p.closed:
		return net.ErrClosed
	}
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepts:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Net: "pipe"} }
