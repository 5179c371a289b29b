package docker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/moby/moby/client"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest/relay"
)

// execConnection is a connection over the standard streams of a program in a container. The daemon
// sends standard output and standard error as frames. The header of each frame has the number of
// the stream and the length.
type execConnection struct {
	net.Conn
	hijacked client.HijackedResponse
	unread   uint32 // bytes of the current frame of output that are not read yet
	streams  *relay.Streams
	once     sync.Once

	mu     sync.Mutex
	stderr strings.Builder // the beginning of standard error
}

const (
	// frameOutput and frameErrors are types of frames, and frameHeader is the size of their header.
	frameOutput = 1
	frameErrors = 2
	frameHeader = 8
	// maxErrors bounds how much of standard error is stored.
	maxErrors = 4 << 10
)

func newExecConnection(h client.HijackedResponse) *execConnection {
	return &execConnection{Conn: h.Conn, hijacked: h}
}

// Read reads from the program's standard output.
func (c *execConnection) Read(b []byte) (int, error) {
	for c.unread == 0 {
		var header [frameHeader]byte
		if _, err := io.ReadFull(c.hijacked.Reader, header[:]); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = io.EOF
			}
			return 0, err
		}
		size := binary.BigEndian.Uint32(header[4:])
		if header[0] == frameOutput {
			c.unread = size
			continue
		}
		if err := c.readErrors(int64(size)); err != nil {
			return 0, err
		}
	}
	n, err := c.hijacked.Reader.Read(b[:min(len(b), int(c.unread))])
	c.unread -= uint32(n)
	return n, err
}

// readErrors stores the beginning of the program's standard error.
func (c *execConnection) readErrors(size int64) error {
	text := new(strings.Builder)
	if _, err := io.CopyN(text, c.hijacked.Reader, min(size, maxErrors)); err != nil {
		return err
	}
	c.mu.Lock()
	if c.stderr.Len() < maxErrors {
		c.stderr.WriteString(text.String())
	}
	c.mu.Unlock()
	_, err := io.CopyN(io.Discard, c.hijacked.Reader, max(size-maxErrors, 0))
	return err
}

// errors returns what the program printed on standard error.
func (c *execConnection) errors() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.TrimSpace(c.stderr.String())
}

// Close implements net.Conn.
func (c *execConnection) Close() error {
	c.once.Do(c.hijacked.Close)
	return nil
}

// close closes the streams over the connection, if there are any, and the connection.
func (c *execConnection) close() error {
	if c.streams != nil {
		return c.streams.Close() // this also closes the connection
	}
	return c.Close()
}

// boot sends the guest its configuration and returns when the guest is ready.
func boot(ctx context.Context, conn *execConnection, spec engine.Spec) error {
	written := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn.Conn, spec.Boot.Stream())
		written <- errors.Join(err, conn.hijacked.CloseWrite())
	}()
	err := engine.AwaitReady(ctx, conn)
	if err == nil || ctx.Err() != nil {
		return err
	}
	message := conn.errors()
	if writeErr := <-written; writeErr != nil {
		err = errors.Join(err, writeErr)
	}
	if message != "" {
		err = fmt.Errorf("%w: %s", err, message)
	}
	return err
}
