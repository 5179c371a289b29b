package crannog

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"

	"github.com/crannog/crannog/internal/filetree/hosttools"
	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/server"
	"github.com/crannog/crannog/internal/server/standard"
)

// Main must be the first call in the main function of a program that uses Local. An
// engine starts the same program again as further processes; in these, Main does the
// engine's work and does not return.
func Main() { standard.Dispatch() }

// LocalOption configures Local.
type LocalOption func(*standard.Options) error

// State sets the state directory. The default is the directory crannog in the user's cache
// directory.
func State(dir string) LocalOption {
	return func(o *standard.Options) error { o.State = dir; return nil }
}

// Logger sets the destination of the engine's log. By default the log is discarded.
func Logger(log *slog.Logger) LocalOption {
	return func(o *standard.Options) error { o.Log = log; return nil }
}

// Local returns a client of an engine in this process, without a server, a port or a
// key. Close ends its ephemeral sandboxes; others continue, and a later client of the
// same state directory finds them.
func Local(ctx context.Context, opts ...LocalOption) (*Client, error) {
	o := standard.Options{Log: slog.New(slog.DiscardHandler), Version: "embedded"}
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, fromFault(err)
		}
	}
	if !reexec.Dispatched() {
		return nil, &Error{
			Kind: "invalid", Code: "main_not_called", Message: "this program did not call crannog.Main",
			Hint: "make crannog.Main() the first line of func main",
		}
	}
	if o.State == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, errors.Join(errors.New("crannog: no state directory: name one with State"), err)
		}
		o.State = filepath.Join(cache, "crannog")
	}
	if o.Settings.Tools.Home == "" {
		if home, err := os.UserHomeDir(); err == nil {
			o.Settings.Tools = hosttools.Host{Home: home, Variable: os.Getenv, Private: []string{o.State}}
		}
	}
	d, err := standard.Open(ctx, o)
	if err != nil {
		return nil, fromFault(err)
	}
	return inProcess(ctx, d), nil
}

// inProcess returns a client of a server in this process. Closing the client ends the
// server.
func inProcess(ctx context.Context, d *server.Server) *Client {
	local := d.Local()
	transport := newTransport(local.Dial)
	return &Client{
		base: "http://localhost",
		http: &http.Client{Transport: transport, CheckRedirect: refuseRedirect},
		closer: func() error {
			transport.CloseIdleConnections()
			return errors.Join(local.Close(), d.Close(context.WithoutCancel(ctx)))
		},
	}
}
