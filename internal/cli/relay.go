package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/client"
)

// codeBrokenPipe is the exit code that shells report for a program whose reader has closed its end.
const codeBrokenPipe = 128 + int(syscall.SIGPIPE)

// relay runs a command with this process's standard streams. The descriptors themselves are never
// given to a sandbox: its kernel would write to a plain file at offsets of its own and overwrite
// the content.
type relay struct {
	app     *app
	cmd     *crannog.Cmd
	signals <-chan os.Signal
	// kill ends the command at the second interrupt.
	kill func()
}

// run returns the command's exit code.
func (r *relay) run(ctx context.Context) (int, error) {
	code, _, err := r.outcome(ctx)
	return code, err
}

// outcome returns the exit code, and reports whether the time limit ended the command.
func (r *relay) outcome(ctx context.Context) (int, bool, error) {
	restore := func() {}
	defer func() { restore() }()
	if r.cmd.TTY != nil {
		state, err := term.MakeRaw(int(r.app.Stdin.Fd()))
		if err != nil {
			return 0, false, fail("set up the terminal", err)
		}
		restore = func() {
			// The terminal may be closed; then there is nothing to restore.
			_ = term.Restore(int(r.app.Stdin.Fd()), state)
		}
	}
	if err := r.cmd.Start(); err != nil {
		return 0, false, err
	}
	done := make(chan struct{})
	defer close(done)
	go r.forward(done)
	if r.cmd.TTY != nil {
		go r.followSize(done)
	}
	err := r.cmd.Wait()
	code, failed := r.result(ctx, err)
	return code, errors.Is(err, crannog.ErrTimeout) && failed == nil, failed
}

// result returns the exit code for the error of Wait, or the error if the command has none.
func (r *relay) result(ctx context.Context, err error) (int, error) {
	if err == nil {
		return 0, nil
	}
	if exit, ok := errors.AsType[*crannog.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	if errors.Is(err, syscall.EPIPE) {
		return codeBrokenPipe, nil
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	return 0, err
}

// forward passes signals to the command. The first is passed unchanged; a second signal that
// requests an end becomes a kill.
func (r *relay) forward(done <-chan struct{}) {
	endRequests := 0
	for {
		select {
		case <-done:
			return
		case s := <-r.signals:
			sig, ok := s.(syscall.Signal)
			if !ok {
				continue
			}
			if sig == syscall.SIGINT || sig == syscall.SIGTERM {
				if endRequests++; endRequests > 1 {
					r.kill()
					continue
				}
			}
			// The command may have just ended; Wait returns its result.
			_ = r.cmd.Signal(sig)
		}
	}
}

// followSize passes changes of the terminal's size to the command until done is closed.
func (r *relay) followSize(done <-chan struct{}) {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	for {
		select {
		case <-done:
			return
		case <-resized:
			if size, ok := r.app.size(); ok {
				// If the terminal misses one change of its size, it gets the next.
				_ = r.cmd.Resize(size)
			}
		}
	}
}

// streams connects the command: to a terminal if both ends are one, otherwise to pipes.
func (a runVerbs) streams(cmd *crannog.Cmd, tty bool) {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.Stdin, a.Stdout, a.Stderr
	if tty {
		size, _ := a.size()
		cmd.TTY = &size
		a.screen = &fullScreen{out: a.Stdout}
		cmd.Stdout = a.screen
	}
}

// notifySignals returns the signals that are passed to the command.
func notifySignals() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 8)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	// If the reader of the output is closed, Write must return an error instead of ending the
	// process, so that the sandbox is removed.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	return c, func() { signal.Stop(c); signal.Stop(pipe) }
}

// explainEnd explains a broken stream. The reason of the sandbox's end determines the exit code.
func (a runVerbs) explainEnd(ctx context.Context, sb *crannog.Sandbox, err error) (int, error) {
	if crannog.Code(err) != client.CodeLost {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	info, getErr := sb.Refresh(ctx)
	for getErr == nil && info.State != "stopped" && !slices.Contains(alive[1:], info.State) && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
		info, getErr = sb.Refresh(ctx)
	}
	if getErr != nil {
		return 0, err
	}
	if info.State != "stopped" {
		return 0, interruptedError(info)
	}
	switch info.Reason {
	case "oom":
		a.note("the memory limit ended the sandbox")
		return 128 + int(syscall.SIGKILL), nil
	case "timeout":
		a.note("the sandbox reached its time limit")
		return client.CodeTimeout, nil
	case "killed":
		return 128 + int(syscall.SIGKILL), nil
	}
	return 0, err
}

// interruptedError is the error of a command whose stream broke because its sandbox was paused or
// rolled back. The error of the stream would not explain that.
func interruptedError(info api.Sandbox) error {
	text := fmt.Sprintf("sandbox %s was paused or rolled back while the command ran, and is %s now", label(info), info.State)
	if info.State == "running" {
		text = fmt.Sprintf("the command was interrupted, but sandbox %s runs: it was rolled back, or the connection broke", label(info))
	}
	if info.State == "pausing" || info.State == "paused" {
		return fault.New(fault.Conflict, "sandbox_paused", text).
			WithHint("crannog resume " + label(info) + " continues the sandbox; further output of the command is lost")
	}
	return fault.New(fault.Unavailable, client.CodeLost, text).
		WithHint("the command may have run partly; check before running it again")
}
