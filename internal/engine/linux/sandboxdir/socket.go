package sandboxdir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest/relay"
)

// socketName is the socket in a sandbox's directory that takes streams to its guest.
const socketName = "guest.sock"

// controlName is the socket at which the sandbox's process takes orders of the engine.
const controlName = "control.sock"

// GatewayName is the socket on which the egress gateway listens, for a sandbox without a network
// interface.
const GatewayName = "gateway.sock"

// Short returns an alias of a directory that is short enough for a socket address and contains no
// character of the directory's own path. The alias works in this process until done is called,
// wherever the directory is moved.
func Short(dir string) (path string, done func(), err error) {
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d", f.Fd()), func() { f.Close() }, nil
}

// Listen creates the sandbox's socket. Any process that may enter the directory can connect.
func Listen(dir string) (*os.File, error) { return listen(dir, socketName) }

// ListenControl creates the socket for orders of the engine to the sandbox's process.
func ListenControl(dir string) (*os.File, error) { return listen(dir, controlName) }

// DialControl connects to the socket of ListenControl.
func DialControl(ctx context.Context, dir string) (net.Conn, error) {
	return dial(ctx, dir, controlName)
}

// ListenGateway creates the socket for the egress gateway.
func ListenGateway(dir string) (*os.File, error) { return listen(dir, GatewayName) }

// DialGateway connects to the socket of ListenGateway.
func DialGateway(ctx context.Context, dir string) (net.Conn, error) {
	return dial(ctx, dir, GatewayName)
}

func dial(ctx context.Context, dir, name string) (net.Conn, error) {
	path, done, err := Short(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	var d net.Dialer
	return d.DialContext(ctx, "unix", filepath.Join(path, name))
}

func listen(dir, name string) (*os.File, error) {
	path, done, err := Short(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(path, name), Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	return l.File()
}

// Dial opens a stream through the socket of a sandbox to a port in it. The function alive reports
// whether the process that listens at the socket still runs.
func Dial(ctx context.Context, dir string, port int, alive func() bool) (net.Conn, error) {
	id := filepath.Base(dir)
	path, done, err := Short(dir)
	if err != nil {
		return nil, engine.HasStopped(id, err)
	}
	defer done()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", filepath.Join(path, socketName))
	if err == nil {
		err = relay.DialDirect(ctx, conn, port)
	}
	switch {
	case err == nil:
		return conn, nil
	case !alive():
		return nil, engine.HasStopped(id, err)
	case errors.Is(err, relay.ErrRefused):
		return nil, engine.PortClosed(port, err)
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT), errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return nil, engine.HasStopped(id, err)
	}
	return nil, fmt.Errorf("dial %s:%d: %w", id, port, err)
}
