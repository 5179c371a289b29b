package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/peercred"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server/standard"
)

// connection is a connection to a server.
type connection struct {
	*crannog.Client
	// local is true if the server shares this machine's file system.
	local bool
	// own is true if the server is this process.
	own bool
	// where describes the server, for -v.
	where string
}

// connect connects to the server: the one of the setting url, else the local server by its socket,
// else an engine in this process.
func (a *app) connect(ctx context.Context) (*connection, error) {
	if a.config.Client.URL != "" {
		client, err := crannog.New(crannog.URL(a.config.Client.URL), crannog.Key(a.config.Client.Key.Reveal()))
		if err != nil {
			return nil, fail("reach the server", err)
		}
		return a.logConnection(&connection{client, false, false, "server at " + a.config.Client.URL}), nil
	}
	if socket := a.config.Socket(); answers(ctx, socket) {
		client, err := crannog.New(crannog.Socket(socket))
		if err != nil {
			return nil, fail("reach the server", err)
		}
		return a.logConnection(&connection{client, true, false, "local server at " + socket}), nil
	}
	settings, err := a.settings()
	if err != nil {
		return nil, err
	}
	client, err := crannog.Local(ctx, crannog.State(a.config.State), crannog.Logger(a.logger()),
		crannog.SecretsKey(a.config.Secrets.Key), crannog.SecretsExec(a.config.Secrets.Exec),
		func(o *standard.Options) error {
			o.HostEtc = a.config.HostEtcPaths()
			o.Packages = standard.PackagesOf(a.config)
			o.Settings, o.Audit, o.Starts, o.Version = settings, standard.Audit(a.config), standard.Starts(a.config), a.version
			o.DefaultEngine, o.Docker, o.MicroVM, o.NoDevice, o.Images = a.config.Engines.Default, standard.DockerOf(a.config), standard.MicroVMOf(a.config), standard.NoDevice(a.config), standard.ImagesOf(a.config)
			return nil
		})
	if err != nil {
		return nil, fail("start an engine", err).hint(first(fault.HintOf(err), "crannog doctor shows what this machine lacks"))
	}
	return a.logConnection(&connection{client, true, true, "no server runs; starting an engine in this process"}), nil
}

// logConnection prints with -v to which server the command is connected, and returns c.
func (a *app) logConnection(c *connection) *connection {
	if a.verbose {
		fmt.Fprintln(a.Stderr, "crannog: "+c.where)
	}
	return c
}

// hasServer reports whether a server is available, other than an engine in this process.
func (a *app) hasServer(ctx context.Context) bool {
	return a.config.Client.URL != "" || answers(ctx, a.config.Socket())
}

// answers reports whether a server listens on the socket. A killed server leaves the socket's file
// behind, so the file alone proves nothing.
func answers(ctx context.Context, socket string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return false
	}
	// Nothing was sent, so nothing can be lost.
	defer conn.Close()
	// A process that a killed server was starting may hold the listening socket until it
	// executes its program. A connection then succeeds, and is reset later.
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return true
	}
	cred, err := peercred.Of(c)
	return err != nil || !peercred.Ended(int(cred.Pid))
}

// settings are the server settings for an engine in this process.
func (a *app) settings() (sandbox.Settings, error) {
	s, err := standard.Settings(a.config)
	if err != nil {
		return s, fail("use the settings", invalid(codeSettings, err)).hint(first(fault.HintOf(err), "crannog config shows where each value comes from"))
	}
	s.Tools = a.hostTools()
	return s, nil
}

// logger logs messages of an engine in this process: errors, and with -v all messages. It never
// writes to standard output.
func (a *app) logger() *slog.Logger {
	level := slog.LevelError
	if a.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: level}))
}

// with connects, calls work and closes the connection.
func (a *app) with(ctx context.Context, work func(*connection) error) (err error) {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		// Saved data is written to the disk now. Show a progress line only without a program's
		// output, which may have ended within a line.
		if c.own && !a.running {
			defer a.progress("closing the state directory")()
		}
		if closeErr := c.Close(); closeErr != nil && err == nil {
			err = fail("close the connection", closeErr)
		}
	}()
	return work(c)
}

// findHint returns advice for a sandbox that was not found.
func findHint(err error) string {
	if crannog.Code(err) == "server_unreachable" {
		return "is the server running? crannog serve"
	}
	return "crannog ls lists running sandboxes, crannog ls --all also ended ones"
}

// checkRunning returns an error for a sandbox that does not run.
func checkRunning(info api.Sandbox) error {
	switch info.State {
	case "running":
		return nil
	case "pausing", "paused":
		return fail("use the sandbox", fault.Newf(fault.Conflict, "sandbox_paused", "sandbox %s is %s", label(info), info.State)).
			hint("crannog resume " + label(info))
	}
	return notRunning(info)
}

// checkNotEnded returns an error for a sandbox that has ended. It is still listed, so "not found"
// would be confusing.
func checkNotEnded(info api.Sandbox) error {
	if info.State != "stopped" {
		return nil
	}
	return notRunning(info)
}

// notRunning returns the error for a sandbox that does not run.
func notRunning(info api.Sandbox) error {
	text := fmt.Sprintf("sandbox %s is %s", label(info), info.State)
	if info.Reason != "" {
		text += " (" + info.Reason + ")"
	}
	f := fail("use the sandbox", fault.New(fault.Conflict, "not_running", text))
	if info.State != "stopped" {
		return f
	}
	return f.hint("crannog ls lists running sandboxes; crannog audit show --sandbox " + label(info) + " shows its audit entries")
}

// label returns the name of a sandbox, or its ID if it has none.
func label(info api.Sandbox) string { return first(info.Name, info.ID) }
