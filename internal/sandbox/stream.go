package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/crannog/crannog/internal/bulk"
)

// errCut is what a stream into a sandbox ends with when the sandbox goes.
var errCut = fmt.Errorf("the sandbox went: %w", net.ErrClosed)

// stream is a connection into a sandbox. From the moment on in which the
// sandbox goes, nothing is read from it: the machine of one that is paused
// runs on until its state is on disk, and what it says meanwhile is nothing
// that this state knows of. Whoever heard it would take for done what is lost.
type stream struct {
	net.Conn
	gone <-chan struct{}
}

// Read reads what was said before the sandbox went.
func (c *stream) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.gone:
		return 0, errCut
	default:
		return n, err
	}
}

// CloseWrite tells the other side that all is said, where the engine can.
func (c *stream) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// ReadFrom implements io.ReaderFrom: what goes in goes in few large pieces.
func (c *stream) ReadFrom(r io.Reader) (int64, error) {
	return bulk.Copy(func(piece []byte) error {
		_, err := c.Write(piece)
		return err
	}, r)
}
