package jail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/relay"
)

// Dial implements engine.Engine. Each stream is a connection to a socket in the
// sandbox's directory, at which the guest listens.
func (e *Engine) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, fault.Newf(fault.Invalid, "invalid_port", "port %d is not between 1 and 65535", port)
	}
	b, err := e.find(id)
	if err != nil {
		return nil, err
	}
	b.watch()
	if b.over() {
		return nil, stopped(id, nil)
	}
	dir, done, err := throughDescriptor(b.dir)
	if err != nil {
		return nil, stopped(id, err)
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
		return nil, fault.Wrap(err, fault.Unavailable, "port_closed", fmt.Sprintf("nothing listens on port %d", port))
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT), errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return nil, stopped(id, err)
	}
	return nil, fmt.Errorf("dial %s:%d: %w", id, port, err)
}

func stopped(id string, err error) error {
	return fault.Wrap(err, fault.NotFound, "sandbox_not_found", fmt.Sprintf("sandbox %q has stopped", id))
}
