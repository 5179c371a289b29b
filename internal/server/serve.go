package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

const (
	// headTimeout bounds how long a caller in this process may take to send a request's head.
	headTimeout = 10 * time.Second
	// maxHead is large enough for the longest file path, escaped in a query.
	maxHead = 64 << 10
	// maxSocketPath is the kernel's limit for the path of a Unix socket.
	maxSocketPath = 107
)

// drainTimeout is how long requests may take to finish after a shutdown was requested. Streams into
// sandboxes are closed at once, because they may last for hours. Only a test changes the value.
var drainTimeout = 5 * time.Second

// Listen creates the local socket, so that clients can connect before Serve is called. If Listen
// was not called, Serve calls it.
func (d *Server) Listen(ctx context.Context) (err error) {
	if d.local == nil {
		d.local, err = listenLocal(ctx, SocketPath(d.options.StateDir))
	}
	return err
}

// Serve answers on the listener and on the local socket until the context ends. It then waits up to
// drainTimeout for open requests. The Server must have been opened with Options.Server.
func (d *Server) Serve(ctx context.Context, l net.Listener) (err error) {
	if d.lock == nil {
		return errors.Join(errors.New("serve: the state directory was not opened for a server"), l.Close())
	}
	err = d.Listen(ctx)
	if err == nil {
		d.guarded, err = d.guard()
	}
	if err != nil {
		return errors.Join(err, l.Close()) // d.Close closes the local socket
	}
	defer func() { err = errors.Join(err, d.guarded.Close()) }()
	if err := d.startPool(); err != nil {
		return errors.Join(err, l.Close()) // d.Close closes the local socket
	}
	endCounting, err := d.countPackages(ctx)
	if err != nil {
		return errors.Join(err, l.Close()) // d.Close closes the local socket
	}
	defer endCounting()
	defer d.options.Tracing.Report(ctx, d.figures.Families)()
	local := d.local
	d.dropPrograms(ctx)
	handlers := d.surfaces()
	closeFrontends := d.openFrontends(handlers)
	limits := d.options.Connections
	srv := &http.Server{
		Handler: d.guarded.Handler(handlers), ReadHeaderTimeout: limits.Header, IdleTimeout: limits.Idle, MaxHeaderBytes: maxHead,
		ConnContext: markConnection(d.guarded), ConnState: d.guarded.State, ErrorLog: slog.NewLogLogger(d.options.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 2)
	// The local socket belongs to this user only, so it has no limits.
	for _, l := range []net.Listener{d.guarded.Listener(l), local} {
		go func() { ended <- srv.Serve(l) }()
	}
	serving := 2
	defer d.callWebhook(ctx)()
	select {
	case <-ctx.Done():
		err = nil
	case err = <-ended: // a listener failed
		serving--
	}
	d.draining.Store(true)
	handlers.proxy.Close()
	err = errors.Join(err, closeFrontends())
	// Event streams would delay the shutdown.
	d.Approvals.Close()
	d.Audit.EndFollowing()
	err = errors.Join(err, drain(ctx, srv))
	for range serving {
		if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// callWebhook starts the webhook's deliveries and returns a function that ends them.
func (d *Server) callWebhook(ctx context.Context) func() {
	if d.options.Webhook == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := d.options.Webhook.Run(ctx, d.Approvals); err != nil {
			d.options.Log.Error("approval webhook ended", "err", err)
		}
	}()
	return func() { cancel(); <-ended }
}

// drain waits for open requests and then closes the remaining connections.
func drain(ctx context.Context, srv *http.Server) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	err := srv.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return srv.Close()
	}
	return err
}

// listenLocal creates the socket for local callers. It may remove an existing socket, because this
// process holds the server's lock.
func listenLocal(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fault.Newf(fault.Invalid, "state_path_too_long",
			"the state directory's path is too long for the socket in it: %s is longer than %d bytes", path, maxSocketPath).
			WithHint("use a shorter path with --state")
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("local socket: %w", err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("local socket: %w", err)
	}
	// A process that can connect is treated as the user who runs the server.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("local socket: %w", err), l.Close())
	}
	return l, nil
}
