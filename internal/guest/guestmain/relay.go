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
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/relay"
)

// dialTimeout bounds a connection to a program inside. On a loopback it is
// made or refused at once, unless the program's queue is full.
const dialTimeout = 5 * time.Second

// serveRelay listens for the engine and joins its streams with ports inside:
// with our own servers directly, with programs by the loopback.
// A first stream may be there already; it is nil if not.
func serveRelay(first *firstStream, all *streams, servers map[int]*http.Server, failed chan<- error) error {
	listener, err := listen(engine.RelayPort)
	if err != nil {
		return err
	}
	direct := map[int]*pipes{}
	for port, server := range servers {
		own := newPipes()
		direct[port] = own
		go func() { failed <- server.Serve(own) }()
	}
	open := func(port int) (net.Conn, error) {
		if own := direct[port]; own != nil {
			return own.open()
		}
		// The relay is no way to itself: a stream in a stream would come
		// from outside and not from the engine.
		if port == engine.RelayPort || port == 0 {
			return nil, errors.New("no such port")
		}
		dialer := net.Dialer{Timeout: dialTimeout}
		return dialer.Dial("tcp4", address(port))
	}
	if first != nil {
		go relay.Answer(first, open)
	}
	go func() { failed <- relay.Serve(kept{listener, all}, open) }()
	return nil
}

// firstChannel takes over the stream that the engine opened with the sandbox.
func firstChannel() (*firstStream, error) {
	for fd := engine.GuestChannelFD; fd <= engine.GuestChannelFD+1; fd++ {
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, fmt.Errorf("first stream: %w", err)
		}
	}
	channel := relay.Pipes(os.NewFile(engine.GuestChannelFD, "channel"), os.NewFile(engine.GuestChannelFD+1, "channel"))
	return &firstStream{Conn: channel}, nil
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func listen(port int) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", address(port))
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address(port), err)
	}
	return listener, nil
}

// pipes is a listener whose connections are made in memory.
type pipes struct {
	waiting chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func newPipes() *pipes {
	return &pipes{waiting: make(chan net.Conn), closed: make(chan struct{})}
}

func (p *pipes) open() (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.waiting <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.waiting:
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
