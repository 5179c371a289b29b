package gvisor

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"

	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/host/interrupt"
)

// controlConns is a small pool of connections to one sandbox's control socket. A connection carries
// one call at a time.
type controlConns struct {
	mu     sync.Mutex
	socket string
	idle   []*urpc.Client
	closed bool
}

// maxIdle bounds the number of idle connections, each of which uses a descriptor.
const maxIdle = 4

// setSocket sets the path of the control socket.
func (c *controlConns) setSocket(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.socket = path
}

// call makes one call and gives up when the context ends, because a hanging sandbox must not block
// its callers.
func (c *controlConns) call(ctx context.Context, method string, arg, result any) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // no caller waits for the result
	}
	conn, err := c.get(ctx)
	if err != nil {
		return &noAnswerError{err}
	}
	inTime := abortWithContext(ctx, conn)
	err = conn.Call(method, arg, result)
	if !inTime() {
		// The connection is closed, so that a late answer is not mistaken for the answer to the
		// next call.
		return errors.Join(context.Cause(ctx), err)
	}
	if _, remote := errors.AsType[urpc.RemoteError](err); err != nil && !remote {
		conn.Close()
		return &noAnswerError{err}
	}
	c.put(conn)
	return err
}

// abortWithContext aborts a connection's call when the context ends. The returned function cancels
// this, and reports whether it was in time. The client's own Close would wait for the call. The
// socket's Close does not, and is safe during a call.
func abortWithContext(ctx context.Context, conn *urpc.Client) (inTime func() bool) {
	return interrupt.When(ctx, func() { _ = conn.Socket.Close() }) // the call fails in any case
}

// get returns an idle connection or a new one.
func (c *controlConns) get(ctx context.Context) (*urpc.Client, error) {
	c.mu.Lock()
	if n := len(c.idle); n > 0 {
		conn := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		return conn, nil
	}
	socket := c.socket
	c.mu.Unlock()
	return connectControl(ctx, socket)
}

// put returns a connection to the pool.
func (c *controlConns) put(conn *urpc.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.idle) >= maxIdle {
		conn.Close()
		return
	}
	c.idle = append(c.idle, conn)
}

// close closes the idle connections. Later ones are closed after their call.
func (c *controlConns) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, conn := range c.idle {
		conn.Close()
	}
	c.idle = nil
}

// connectPause is the delay between attempts to connect. A paused kernel accepts no connections,
// and when its backlog is full, the next caller has to wait.
const connectPause = 10 * time.Millisecond

// connectControl opens a control socket for gVisor's client, whose own function waits for the
// kernel without a context.
func connectControl(ctx context.Context, socket string) (*urpc.Client, error) {
	address, done, err := controlAddress(socket)
	if err != nil {
		return nil, err
	}
	defer done()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: address})
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EAGAIN) {
			unix.Close(fd)
			return nil, err
		}
		select {
		case <-ctx.Done():
			unix.Close(fd)
			return nil, context.Cause(ctx)
		case <-time.After(connectPause):
		}
	}
	conn, err := unet.NewSocket(fd)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return urpc.NewClient(conn), nil
}

// controlAddress returns a short address of a control socket, through a descriptor of its
// directory. It is valid until done is called. A socket address has room for 107 bytes, and the
// path of a state directory may be longer.
func controlAddress(socket string) (address string, done func(), err error) {
	dir, done, err := sandboxdir.Short(filepath.Dir(socket))
	return filepath.Join(dir, filepath.Base(socket)), done, err
}
