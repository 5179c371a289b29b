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

// Local serves callers in this process over in-memory connections. There is no port and no socket
// that another program could find.
type Local struct {
	faces *surfaces
	srv   *http.Server
	pipes *pipeListener
	ended chan error
}

// Local starts serving this process.
func (d *Server) Local() *Local {
	l := &Local{faces: d.surfaces(), pipes: newPipeListener(), ended: make(chan error, 1)}
	l.srv = &http.Server{
		Handler: l.faces, ReadHeaderTimeout: headTimeout, MaxHeaderBytes: maxHead,
		// Only this process has the other end.
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, localKey{}, os.Getuid())
		},
		ErrorLog: slog.NewLogLogger(d.options.Log.Handler(), slog.LevelDebug),
	}
	go func() { l.ended <- l.srv.Serve(l.pipes) }()
	return l
}

// Dial connects. It ignores the address.
func (l *Local) Dial(ctx context.Context, _, _ string) (net.Conn, error) { return l.pipes.dial(ctx) }

// Close closes open connections.
func (l *Local) Close() error {
	l.faces.proxy.Close()
	err := l.srv.Close()
	if e := <-l.ended; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// pipeListener accepts the other ends of dialled pipes.
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

// dialMarked is dial with a mark on the accepted end.
func (l *pipeListener) dialMarked(ctx context.Context, mark func(net.Conn) net.Conn) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- mark(theirs):
		return caller{ours}, nil
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), ours.Close(), theirs.Close())
	case <-l.closed:
		return nil, errors.Join(net.ErrClosed, ours.Close(), theirs.Close())
	}
}

// caller is the dialled end of a pipe.
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

type memory struct{}

func (memory) Network() string { return "memory" }
func (memory) String() string  { return "memory" }
