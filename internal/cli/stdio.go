package cli

import (
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/crannog/crannog"
)

// Limits for an MCP server on standard streams: how long it may continue after the end of its
// input, and after SIGTERM. Clients wait about as long before they kill this process.
const (
	stdioGrace = 4 * time.Second
	stdioKill  = time.Second
)

// checkMCP rejects flags that cannot be used with --mcp: standard output belongs to the MCP server
// in the sandbox, and no person is at a terminal.
func (a runVerbs) checkMCP(f *runFlags) error {
	if !f.mcp {
		return nil
	}
	for flag, given := range map[string]bool{"--detach": f.detach, "--ask": f.ask, "--json": a.json} {
		if given {
			return usagef("--mcp and %s exclude each other: the standard streams are the server's and its client's", flag)
		}
	}
	f.noTTY = true
	return nil
}

// endNotifier is standard input with a channel that is closed at its end.
type endNotifier struct {
	io.Reader
	once  sync.Once
	ended chan struct{}
}

func (i *endNotifier) Read(p []byte) (int, error) {
	n, err := i.Reader.Read(p)
	if err != nil {
		i.once.Do(func() { close(i.ended) })
	}
	return n, err
}

// serveStdio ends the command some time after the end of its input, because its client has then
// disconnected. It returns a function that ends the waiting and reports whether the command was
// sent a signal.
func serveStdio(cmd *crannog.Cmd) func() bool {
	in := &endNotifier{Reader: cmd.Stdin, ended: make(chan struct{})}
	cmd.Stdin = in
	done := make(chan struct{})
	ended := make(chan bool, 1)
	go func() {
		signaled := false
		defer func() { ended <- signaled }()
		select {
		case <-in.ended: // read by the command's feed, so it runs
		case <-done:
			return
		}
		for _, step := range []struct {
			after  time.Duration
			signal syscall.Signal
		}{{stdioGrace, syscall.SIGTERM}, {stdioKill, syscall.SIGKILL}} {
			timer := time.NewTimer(step.after)
			select {
			case <-timer.C:
				// The command may have just ended; Wait returns its result.
				signaled = cmd.Signal(step.signal) == nil || signaled
			case <-done:
				timer.Stop()
				return
			}
		}
	}()
	return sync.OnceValue(func() bool { close(done); return <-ended })
}

// withoutRegistry limits npm's retries if there is no network, so that a server that has to be
// downloaded fails at once, with advice on how to allow the download.
func (b *runSandbox) withoutRegistry() []string {
	if b.sb.Info().Network.Attached {
		return nil
	}
	return []string{"npm_config_fetch_retries=0", "npm_config_update_notifier=false"}
}
