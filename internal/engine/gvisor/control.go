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

// controlConns is a small pool of connections to one sandbox's control socket. A
// connection carries one call at a time.
type controlConns struct {
	mu     sync.Mutex
	socket string
	idle   []*urpc.Client
	closed bool
}

// maxIdle bounds how many descriptors an idle sandbox uses.
const maxIdle = 4

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
		return &unanswered{err}
	}
	inTime := breakOff(ctx, conn)
	err = conn.Call(method, arg, result)
	if !inTime() {
		// The connection is closed, so that a late answer is not taken for the answer to the next
		// call.
		return errors.Join(context.Cause(ctx), err)
	}
	if _, remote := errors.AsType[urpc.RemoteError](err); err != nil && !remote {
		conn.Close()
		return &unanswered{err}
	}
	c.put(conn)
	return err
}

// breakOff ends a connection's call when the context ends. The returned function cancels this. The
// client's own Close waits for the call. The socket's Close does not, and is safe during a call.
func breakOff(ctx context.Context, conn *urpc.Client) (inTime func() bool) {
	return interrupt.When(ctx, func() { _ = conn.Socket.Close() }) // the call fails in any case
}

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

func (c *controlConns) put(conn *urpc.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.idle) >= maxIdle {
		conn.Close()
		return
	}
	c.idle = append(c.idle, conn)
}

func (c *controlConns) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, conn := range c.idle {
		conn.Close()
	}
	c.idle = nil
}

// A paused kernel accepts no connections. When its backlog is full, the next caller has to wait.
const acceptPause = 10 * time.Millisecond

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
		case <-time.After(acceptPause):
		}
	}
	conn, err := unet.NewSocket(fd)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return urpc.NewClient(conn), nil
}

// controlAddress returns an address of a control socket through its directory's descriptor, valid
// until done is called. A socket address has room for 107 bytes, and a state directory's path may
// be longer.
func controlAddress(socket string) (address string, done func(), err error) {
	dir, done, err := sandboxdir.Short(filepath.Dir(socket))
	return filepath.Join(dir, filepath.Base(socket)), done, err
}
