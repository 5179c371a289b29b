package relay

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/interrupt"
)

// Dial requests a port from the guest at the other end of a channel and returns a connection to it.
// It takes ownership of the channel. It returns ErrRefused for a port without a listener.
func Dial(ctx context.Context, channel net.Conn, port int) (net.Conn, error) {
	if err := handshake(ctx, channel, port); err != nil {
		_ = channel.Close() // err has the reason
		return nil, err
	}
	ours, theirs, err := pair()
	if err != nil {
		_ = channel.Close() // err has the reason
		return nil, err
	}
	go join(theirs, channel, linger)
	return ours, nil
}

// handshake requests a port, until the context ends.
func handshake(ctx context.Context, channel net.Conn, port int) error {
	return within(ctx, channel, func() error {
		if err := sendPort(channel, port); err != nil {
			return err
		}
		return readAnswer(channel)
	})
}

// within runs a function that uses a connection, and interrupts it when the context ends. It
// removes the deadline from the connection afterwards.
func within(ctx context.Context, channel net.Conn, do func() error) error {
	inTime := interrupt.When(ctx, func() { _ = channel.SetDeadline(time.Unix(1, 0)) })
	err := do()
	if !inTime() {
		return context.Cause(ctx)
	}
	return err
}

// sendPort sends a port number to the guest.
func sendPort(channel net.Conn, port int) error {
	var number [2]byte
	binary.BigEndian.PutUint16(number[:], uint16(port))
	if _, err := channel.Write(number[:]); err != nil {
		return fmt.Errorf("ask for port %d: %w", port, err)
	}
	return nil
}

// readAnswer waits for the guest's answer.
func readAnswer(channel net.Conn) error {
	var answer [1]byte
	if _, err := io.ReadFull(channel, answer[:]); err != nil {
		return fmt.Errorf("the guest's answer: %w", err)
	}
	switch answer[0] {
	case accepted:
		return nil
	case refused:
		return ErrRefused
	}
	return errProtocol
}

// pair returns two connected sockets. Unlike the ends of net.Pipe, they have buffers.
func pair() (ours, theirs net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	first, second := os.NewFile(uintptr(fds[0]), "relay"), os.NewFile(uintptr(fds[1]), "relay")
	defer first.Close() // FileConn has its own copies
	defer second.Close()
	if ours, err = net.FileConn(first); err != nil {
		return nil, nil, err
	}
	if theirs, err = net.FileConn(second); err != nil {
		_ = ours.Close() // err has the reason
		return nil, nil, err
	}
	return ours, theirs, nil
}

// handshakeTimeout limits how long a channel may be open before it names its port.
const handshakeTimeout = 10 * time.Second

// Serve answers channels until the listener fails. Open connects to a port inside. The host gets
// its error as a refusal.
func Serve(l net.Listener, open func(port int) (net.Conn, error)) error {
	for {
		channel, err := l.Accept()
		if err != nil {
			return err
		}
		go answer(channel, open)
	}
}

func answer(channel net.Conn, open func(port int) (net.Conn, error)) {
	var number [2]byte
	if channel.SetDeadline(time.Now().Add(handshakeTimeout)) != nil {
		_ = channel.Close()
		return
	}
	if _, err := io.ReadFull(channel, number[:]); err != nil {
		_ = channel.Close() // the caller has disconnected
		return
	}
	connect(channel, number, open)
}

// connect connects a channel to the requested port.
func connect(channel net.Conn, number [2]byte, open func(port int) (net.Conn, error)) {
	plain, err := open(int(binary.BigEndian.Uint16(number[:])))
	if err != nil {
		_, _ = channel.Write([]byte{refused}) // an error is ignored, because closing has the same meaning
		_ = channel.Close()
		return
	}
	if _, err := channel.Write([]byte{accepted}); err != nil || channel.SetDeadline(time.Time{}) != nil {
		_ = plain.Close() // the caller has disconnected
		_ = channel.Close()
		return
	}
	forwarded(plain, channel)
}
