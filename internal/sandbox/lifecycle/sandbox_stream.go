package lifecycle

import (
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/crannog/crannog/internal/host/bulk"
)

// errCut is the error of a stream into a sandbox that has ended.
var errCut = fmt.Errorf("the sandbox ended: %w", net.ErrClosed)

// stream is a connection into a sandbox. It stops reading when the sandbox is about to end. The
// instance of a paused sandbox runs until its state is on disk, and data that it sends after the
// state was taken is not part of that state. A client that received such data would rely on lost
// work.
type stream struct {
	net.Conn
	gone <-chan struct{}
}

// Read returns data that was sent before the sandbox ended.
func (c *stream) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.gone:
		return 0, errCut
	default:
		return n, err
	}
}

// CloseWrite signals the end of the data to the other side, if the engine can.
func (c *stream) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// ReadFrom implements io.ReaderFrom: data is copied in few large pieces.
func (c *stream) ReadFrom(r io.Reader) (int64, error) {
	return bulk.Copy(func(piece []byte) error {
		_, err := c.Write(piece)
		return err
	}, r)
}
