// Package qmp owns the client of QEMU's machine protocol (QMP). What the client reads is hostile,
// because a program that has taken over QEMU may have written it.
package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/interrupt"
)

// Bounds of what the client reads: the size of a message, and the number of events before the answer
// to a command.
const (
	maxMessage = 64 << 10
	maxEvents  = 1000
)

// ErrProtocol is returned when QEMU does not keep to the protocol. The client cannot be used after
// that.
var ErrProtocol = errors.New("QEMU does not keep to its protocol")

// Error is QEMU's error for a command.
type Error struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("QEMU refuses: %.500q", e.Desc) }

// Client sends commands to QEMU. It is safe for concurrent use.
type Client struct {
	mu     sync.Mutex // held during a command
	conn   *net.UnixConn
	reader *bufio.Reader
	broken error
}

// New returns a client at one end of a connected socket, whose other end is QEMU's monitor.
func New(ctx context.Context, conn *net.UnixConn) (*Client, error) {
	c := &Client{conn: conn, reader: bufio.NewReaderSize(conn, maxMessage)}
	err := c.within(ctx, func() error {
		m, err := readMessage(c.reader)
		if err == nil && m.Greeting == nil {
			err = ErrProtocol
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("greeting of QEMU: %w", err)
	}
	_, err = c.Execute(ctx, "qmp_capabilities", nil, -1)
	return c, err
}

// Execute sends a command and returns the answer. If fd is not negative, QEMU receives a copy of
// this descriptor with the command.
func (c *Client) Execute(ctx context.Context, command string, arguments any, fd int) (json.RawMessage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return nil, c.broken
	}
	line, err := json.Marshal(request{command, arguments})
	if err != nil {
		return nil, err
	}
	var m message
	err = c.within(ctx, func() error {
		var rights []byte
		if fd >= 0 {
			rights = unix.UnixRights(fd)
		}
		if _, _, err := c.conn.WriteMsgUnix(append(line, '\n'), rights, nil); err != nil {
			return err
		}
		for range maxEvents {
			if m, err = readMessage(c.reader); err != nil || !m.isEvent() {
				return err
			}
		}
		return ErrProtocol
	})
	if err != nil {
		// An answer that arrives later would be taken for that of another command.
		c.broken = fmt.Errorf("%s: %w", command, err)
		return nil, c.broken
	}
	if m.Error != nil {
		return nil, fmt.Errorf("%s: %w", command, m.Error)
	}
	return m.Return, nil
}

// within runs a function that uses the connection, and interrupts it when the context ends.
func (c *Client) within(ctx context.Context, do func() error) error {
	inTime := interrupt.When(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	err := do()
	if !inTime() {
		return context.Cause(ctx)
	}
	return err
}

// request is a command.
type request struct {
	Execute   string `json:"execute"`
	Arguments any    `json:"arguments,omitempty"`
}

// message is what QEMU sends.
type message struct {
	Greeting json.RawMessage `json:"QMP"`
	Event    string          `json:"event"`
	Return   json.RawMessage `json:"return"`
	Error    *Error          `json:"error"`
}

// isEvent reports whether the message is an event, which is no answer.
func (m message) isEvent() bool { return m.Event != "" }

// readMessage reads one message, which is one line.
func readMessage(r *bufio.Reader) (m message, err error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return m, ErrProtocol
	}
	if err != nil {
		return m, err
	}
	if json.Unmarshal(line, &m) != nil {
		return m, ErrProtocol
	}
	kinds := 0
	for _, set := range []bool{m.Greeting != nil, m.Event != "", m.Return != nil, m.Error != nil} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return m, ErrProtocol
	}
	return m, nil
}
