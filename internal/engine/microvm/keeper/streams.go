package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/relay"
)

// pair returns two connected sockets. ourEnd is non-blocking.
func pair() (ourEnd, childEnd *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "machine"), os.NewFile(uintptr(fds[1]), "machine"), nil
}

// connPair is pair for a socket that passes descriptors.
func connPair() (ours *net.UnixConn, childEnd *os.File, err error) {
	file, childEnd, err := pair()
	if err != nil {
		return nil, nil, err
	}
	defer file.Close() // FileConn has its own copy
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, nil, errors.Join(err, childEnd.Close())
	}
	return conn.(*net.UnixConn), childEnd, nil // pair makes such sockets
}

// listenerOf returns a listening socket of the engine.
func listenerOf(fd int) (net.Listener, error) {
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close() // FileListener has its own copy
	listener, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("listener: %w", err)
	}
	return listener, nil
}

// channelStreams opens streams through the channel. It implements relay.Inside.
type channelStreams struct{ channel *relay.Channel }

// Serves implements relay.Inside.
func (channelStreams) Serves(int) bool { return false }

// Take implements relay.Inside.
func (channelStreams) Take(int, net.Conn) bool { return false }

// Open implements relay.Inside.
func (c channelStreams) Open(port int) (net.Conn, error) {
	return c.channel.Dial(context.Background(), port)
}
