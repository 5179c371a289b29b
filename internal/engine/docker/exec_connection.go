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
// sends output and errors of the program as frames, each with a header that states the stream and
// the length.
type execConnection struct {
	net.Conn
	hijacked client.HijackedResponse
	left     uint32 // bytes left of the present frame of output
	streams  *relay.Streams
	once     sync.Once

	mu     sync.Mutex
	stderr strings.Builder // the beginning of standard error
}

// Types of frames, and the size of their header.
const (
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
func (i *execConnection) Read(b []byte) (int, error) {
	for i.left == 0 {
		var header [frameHeader]byte
		if _, err := io.ReadFull(i.hijacked.Reader, header[:]); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = io.EOF
			}
			return 0, err
		}
		size := binary.BigEndian.Uint32(header[4:])
		if header[0] == frameOutput {
			i.left = size
			continue
		}
		if err := i.readErrors(int64(size)); err != nil {
			return 0, err
		}
	}
	n, err := i.hijacked.Reader.Read(b[:min(len(b), int(i.left))])
	i.left -= uint32(n)
	return n, err
}

// readErrors stores the beginning of the program's standard error.
func (i *execConnection) readErrors(size int64) error {
	text := new(strings.Builder)
	if _, err := io.CopyN(text, i.hijacked.Reader, min(size, maxErrors)); err != nil {
		return err
	}
	i.mu.Lock()
	if i.stderr.Len() < maxErrors {
		i.stderr.WriteString(text.String())
	}
	i.mu.Unlock()
	_, err := io.CopyN(io.Discard, i.hijacked.Reader, max(size-maxErrors, 0))
	return err
}

// errors returns what the program printed on standard error.
func (i *execConnection) errors() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return strings.TrimSpace(i.stderr.String())
}

// Close implements net.Conn.
func (i *execConnection) Close() error {
	i.once.Do(i.hijacked.Close)
	return nil
}

func (i *execConnection) close() error {
	if i.streams != nil {
		return i.streams.Close() // this also closes the connection
	}
	return i.Close()
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
	words := conn.errors()
	if late := <-written; late != nil {
		err = errors.Join(err, late)
	}
	if words != "" {
		err = fmt.Errorf("%w: %s", err, words)
	}
	return err
}
