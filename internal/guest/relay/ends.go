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

// Dial asks the guest at the other end of a channel for a port and returns a connection to it. It
// takes ownership of the channel. It returns ErrRefused for a port without a listener.
func Dial(ctx context.Context, channel net.Conn, port int) (net.Conn, error) {
	if err := ask(ctx, channel, port); err != nil {
		_ = channel.Close() // it failed already
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

// ask makes the handshake of a stream, until the context ends.
func ask(ctx context.Context, channel net.Conn, port int) error {
	return within(ctx, channel, func() error {
		if err := say(channel, port); err != nil {
			return err
		}
		return hear(channel)
	})
}

// within runs a function with a connection, until the context ends. It leaves no deadline on a
// connection that is kept.
func within(ctx context.Context, channel net.Conn, do func() error) error {
	inTime := interrupt.When(ctx, func() { _ = channel.SetDeadline(time.Unix(1, 0)) })
	err := do()
	if !inTime() {
		return context.Cause(ctx)
	}
	return err
}

// say sends the guest a port.
func say(channel net.Conn, port int) error {
	var number [2]byte
	binary.BigEndian.PutUint16(number[:], uint16(port))
	if _, err := channel.Write(number[:]); err != nil {
		return fmt.Errorf("ask for port %d: %w", port, err)
	}
	return nil
}

// hear waits for the guest's answer.
func hear(channel net.Conn) error {
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

// pair creates two connected sockets: the kernel's have deadlines, buffers and everything else that
// a connection's user may need.
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

// askTimeout limits how long a channel may be open without stating its port.
const askTimeout = 10 * time.Second

// Serve answers channels until the listener fails. Open connects to a port inside; its error
// becomes a refusal.
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
	if channel.SetDeadline(time.Now().Add(askTimeout)) != nil {
		_ = channel.Close()
		return
	}
	if _, err := io.ReadFull(channel, number[:]); err != nil {
		_ = channel.Close() // the caller has left
		return
	}
	connect(channel, number, open)
}

// connect connects a channel to the requested port.
func connect(channel net.Conn, number [2]byte, open func(port int) (net.Conn, error)) {
	plain, err := open(int(binary.BigEndian.Uint16(number[:])))
	if err != nil {
		_, _ = channel.Write([]byte{refused}) // closing shows it too
		_ = channel.Close()
		return
	}
	if _, err := channel.Write([]byte{accepted}); err != nil || channel.SetDeadline(time.Time{}) != nil {
		_ = plain.Close()
		_ = channel.Close()
		return
	}
	forwarded(plain, channel)
}
