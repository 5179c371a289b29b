package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/crannog/crannog/internal/host/bulk"
)

// Local serves callers in this process over in-memory connections. Other programs cannot connect,
// because there is no port and no socket.
type Local struct {
	handlers *surfaces
	srv      *http.Server
	pipes    *pipeListener
	ended    chan error
}

// Local starts serving this process.
func (d *Server) Local() *Local {
	l := &Local{handlers: d.surfaces(), pipes: newPipeListener(), ended: make(chan error, 1)}
	l.srv = &http.Server{
		Handler: l.handlers, ReadHeaderTimeout: headTimeout, MaxHeaderBytes: maxHead,
		// Only this process has the other end.
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, localKey{}, os.Getuid())
		},
		ErrorLog: slog.NewLogLogger(d.options.Log.Handler(), slog.LevelDebug),
	}
	go func() { l.ended <- l.srv.Serve(l.pipes) }()
	return l
}

// Dial connects to the server. It ignores the address.
func (l *Local) Dial(ctx context.Context, _, _ string) (net.Conn, error) { return l.pipes.dial(ctx) }

// Close closes open connections.
func (l *Local) Close() error {
	l.handlers.proxy.Close()
	err := l.srv.Close()
	if e := <-l.ended; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// pipeListener is a net.Listener that accepts in-memory connections.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	return l.dialMarked(ctx, func(c net.Conn) net.Conn { return c })
}

// dialMarked is like dial, and applies mark to the accepted end.
func (l *pipeListener) dialMarked(ctx context.Context, mark func(net.Conn) net.Conn) (net.Conn, error) {
	clientEnd, serverEnd := net.Pipe()
	select {
	case l.conns <- mark(serverEnd):
		return caller{clientEnd}, nil
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), clientEnd.Close(), serverEnd.Close())
	case <-l.closed:
		return nil, errors.Join(net.ErrClosed, clientEnd.Close(), serverEnd.Close())
	}
}

// caller is the client's end of a pipe.
type caller struct{ net.Conn }

// ReadFrom implements io.ReaderFrom. It uses large pieces, because each write waits for the other
// end's read.
func (c caller) ReadFrom(r io.Reader) (int64, error) {
	return bulk.Copy(func(piece []byte) error {
		_, err := c.Write(piece)
		return err
	}, r)
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return memory{} }

// memory is the address of an in-memory connection.
type memory struct{}

func (memory) Network() string { return "memory" }
func (memory) String() string  { return "memory" }
