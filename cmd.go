package crannog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/guest/client"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

// Size is the size of a terminal, in characters.
type Size struct{ Cols, Rows uint16 }

// Cmd is a command that runs, or will run, in a sandbox. It is used like
// exec.Cmd of package os/exec: set the fields, then call Run, Output, or
// Start and Wait. It cannot be reused.
type Cmd struct {
	Args   []string // Args[0] is the program
	Env    []string // "name=value", on top of the sandbox's own
	Dir    string   // "" is the home of User
	User   string   // "" is the sandbox's default user
	Stdin  io.Reader
	Stdout io.Writer // nil discards it
	Stderr io.Writer // nil discards it
	// TTY runs the command on a terminal of this size. All its output then
	// goes to Stdout.
	TTY *Size
	// Timeout kills the command. Zero is the sandbox's limit.
	Timeout time.Duration
	// WaitDelay bounds how long Wait waits for output while a background process still holds the
	// output open after the command has ended. That process continues, and its later output is
	// discarded. With zero, Wait waits until the output is closed.
	WaitDelay time.Duration
	// Hangup hangs the command up, as the end of an SSH connection does, when its context ends or
	// the connection to it breaks: its terminal sends SIGHUP, its input ends, and a later write to
	// its output fails. Without it, the end of the context kills the command, and a broken
	// connection leaves it running.
	Hangup bool
	// Binary is for output that a program reads: a secret's value in it is replaced by as many
	// bytes, and text that only looks like a token stays, as in files.
	Binary bool

	ctx     context.Context
	sandbox *Sandbox
	proc    *client.Process
	pipes   []io.Closer // pipe ends that Wait closes
	unwatch func() bool // cancels the callback that ends the program when ctx ends
	feed    cmdInput
	done    chan struct{}
	result  cmdResult
}

// cmdInput is the state of sending a command's input.
type cmdInput struct {
	pipe *io.PipeWriter     // of StdinPipe
	stop context.CancelFunc // cancels sending Stdin
}

// cmdResult is the result of a command.
type cmdResult struct {
	exit client.Exit
	err  error
}

// Command returns a Cmd that runs a program with arguments, without a shell.
func (s *Sandbox) Command(name string, args ...string) *Cmd {
	return s.CommandContext(context.Background(), name, args...)
}

// CommandContext is Command with a context that kills the program when done.
func (s *Sandbox) CommandContext(ctx context.Context, name string, args ...string) *Cmd {
	return &Cmd{Args: append([]string{name}, args...), ctx: ctx, sandbox: s}
}

// Start starts the command and does not wait for its end.
func (c *Cmd) Start() error {
	if c.done != nil {
		return errors.New("crannog: the command was started already")
	}
	spec, err := c.spec()
	if err != nil {
		return err
	}
	c.done = make(chan struct{})
	// The stream outlives ctx by the time that a kill needs, so that the program's last output and
	// its end are read.
	stream, cut := context.WithCancel(context.WithoutCancel(c.ctx))
	unlink := context.AfterFunc(c.ctx, cut)
	c.proc, err = c.sandbox.processes().Start(stream, spec)
	if !unlink() && err == nil {
		err = c.ctx.Err()
	}
	if err != nil {
		cut()
		c.closePipes(err)
		if c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		return fromFault(err)
	}
	c.unwatch = context.AfterFunc(c.ctx, func() { c.end(cut) })
	feedCtx, stopFeed := context.WithCancel(context.WithoutCancel(c.ctx))
	c.feed.stop = stopFeed
	if spec.Stdin {
		go c.feedStdin(feedCtx)
	}
	go c.pump(cut)
	return nil
}

// spec returns the request that starts the command.
func (c *Cmd) spec() (client.Spec, error) {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return client.Spec{}, errors.New("crannog: the command names no program")
	}
	spec := client.Spec{
		Cmd: c.Args[0], Args: c.Args[1:], Dir: c.Dir, User: c.User,
		Stdin: c.Stdin != nil, Timeout: c.Timeout, WaitDelay: c.WaitDelay, Hangup: c.Hangup, Binary: c.Binary, Env: map[string]string{},
	}
	for _, pair := range c.Env {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return client.Spec{}, fmt.Errorf("crannog: %q is not name=value", pair)
		}
		spec.Env[name] = value
	}
	if c.TTY != nil {
		spec.TTY = &client.Size{Cols: c.TTY.Cols, Rows: c.TTY.Rows}
	}
	return spec, nil
}

// pump copies the output to Stdout and Stderr until the command ends, and then lets Wait return.
func (c *Cmd) pump(cut context.CancelFunc) {
	defer close(c.done)
	defer cut()
	exit, err := c.proc.Stream(orDiscard(c.Stdout), orDiscard(c.Stderr))
	time.AfterFunc(feedGrace, c.feed.stop)
	c.unwatch()
	if err != nil {
		// The reader of the output is gone, so the program is no longer needed. A broken stream
		// alone is no reason to kill it: the sandbox may have been paused, or rolled back to a
		// snapshot in which another program has the same PID.
		if c.proc.Undelivered() {
			c.end(func() {}) // pump closes the stream
		}
		err = fromFault(err)
	}
	c.result.exit, c.result.err = exit, err
	c.closePipes(nil)
}

// feedStdin copies Stdin and its end to the program. Wait does not wait for it: a reader such as a
// terminal may never return.
func (c *Cmd) feedStdin(ctx context.Context) {
	c.proc.Feed(ctx, c.Stdin)
	if c.feed.pipe != nil {
		// The program does not read any more, as with a broken pipe.
		_ = c.feed.pipe.CloseWithError(io.ErrClosedPipe)
	}
}

// feedGrace is how long a call that sends input may continue after the program has ended. Its
// response usually arrives soon. Canceling the call would close its connection, which net/http may
// already have given to another command's call.
const feedGrace = time.Second

// signalGrace bounds sending a signal.
const signalGrace = 5 * time.Second

// end kills the program although the command's context is done, or hangs it up by closing the
// stream. If a kill fails, end closes the stream, so that Wait returns.
func (c *Cmd) end(cut context.CancelFunc) {
	if c.Hangup || c.proc.Kill(c.ctx) != nil {
		cut()
	}
}

// Wait waits until the command has ended and its output has been written.
func (c *Cmd) Wait() error {
	if c.done == nil || c.proc == nil {
		return errors.New("crannog: the command was not started")
	}
	<-c.done
	switch {
	case c.ctx.Err() != nil && (c.result.err != nil || c.result.exit.Signal == syscall.SIGKILL):
		return c.ctx.Err()
	case c.result.err != nil:
		return c.result.err
	case c.result.exit.Code != 0:
		return &ExitError{exit: c.result.exit}
	}
	return nil
}

// Run starts the command and waits for its end.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// PID returns the process ID inside. The command must have been started.
func (c *Cmd) PID() int { return int(c.proc.PID()) }

// Signal sends a signal to the program and its process group. The command must have
// been started.
func (c *Cmd) Signal(sig syscall.Signal) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), signalGrace)
	defer cancel()
	return fromFault(c.proc.Signal(ctx, sig))
}

// Resize changes the size of the terminal. The command must have been started.
func (c *Cmd) Resize(size Size) error {
	return fromFault(c.proc.Resize(c.ctx, client.Size{Cols: size.Cols, Rows: size.Rows}))
}

// processes returns a client of the process service in the guest.
func (s *Sandbox) processes() *client.Client {
	return client.New(s.client.http, s.client.base, s.dataHeader(guestboot.Port))
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}
