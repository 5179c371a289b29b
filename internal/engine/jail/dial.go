package jail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/guest/relay"
)

// Dial implements engine.Engine. Each stream is a connection to a socket in the sandbox's directory
// on which the guest listens.
func (e *Engine) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	if err := engine.CheckPort(port); err != nil {
		return nil, err
	}
	b, err := e.find(id)
	if err != nil {
		return nil, err
	}
	b.watch()
	if b.over() {
		return nil, engine.HasStopped(id, nil)
	}
	dir, done, err := sandboxdir.Short(b.dir)
	if err != nil {
		return nil, engine.HasStopped(id, err)
	}
	defer done()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", filepath.Join(dir, socketName))
	if err == nil {
		err = relay.DialDirect(ctx, conn, port)
	}
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, relay.ErrRefused):
		return nil, engine.PortClosed(port, err)
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT), errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return nil, engine.HasStopped(id, err)
	}
	return nil, fmt.Errorf("dial %s:%d: %w", id, port, err)
}
