// Package client owns the server's side of a program in a sandbox: starting it through the guest's
// process service, sending its input, reading its output, and learning its exit code. Output is
// passed on piece by piece.
package client

import (
	"context"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
	"github.com/crannog/crannog/internal/guest/guestwire"
	"github.com/crannog/crannog/internal/guest/utf8text"
)

// Client calls the process service of one sandbox.
type Client struct {
	doer   connect.HTTPClient
	base   string
	rpc    processpbconnect.ProcessClient // for all calls except List
	header http.Header
}

// New returns a client. The header, which contains the sandbox's address and token, is added to
// every request.
func New(doer connect.HTTPClient, base string, header http.Header) *Client {
	return &Client{doer: doer, base: base, rpc: guestwire.Process(doer, base, guestwire.Stream), header: header}
}

// Size is the size of a terminal.
type Size struct{ Cols, Rows uint16 }

// Spec is a command to run.
type Spec struct {
	Cmd   string
	Args  []string
	Env   map[string]string
	Dir   string // "" is the user's home
	User  string // "" is the sandbox's default user
	TTY   *Size  // nil is no terminal
	Stdin bool   // false is an empty input
	// Timeout is the time after which the program is killed. Zero means the sandbox's own limit.
	Timeout time.Duration
	// WaitDelay limits how long to wait, after the program has ended, for output that a background
	// process still holds open. Zero means no limit.
	WaitDelay time.Duration
	// Hangup hangs the program up when the stream ends before it.
	Hangup bool
	// Binary preserves the length of redacted output.
	Binary bool
}

// DetachDelay is the WaitDelay for a caller that does not wait for background processes. It is long
// enough for the program's last output.
const DetachDelay = 100 * time.Millisecond

// Process is a running program. Its methods may be called concurrently, except Stream.
type Process struct {
	client      *Client
	user        string
	pid         uint32
	tty         bool
	bodies      bool // the guest accepts input as the body of a request
	stream      eventStream
	ctx         context.Context // context of the stream
	cancel      context.CancelFunc
	once        sync.Once
	unfed       atomic.Pointer[error] // reason why input was lost
	undelivered atomic.Bool           // a writer accepted no more output
}

// Info describes a running process.
type Info struct {
	PID  uint32
	Cmd  string
	Args []string
	Dir  string
	Tag  string
}

// keepaliveSeconds is the interval of keep-alive messages, which reveal a lost connection on a
// silent stream.
const keepaliveSeconds = "30"

// Start returns as soon as the program runs. When ctx ends, only the stream ends; use Signal to
// stop the program.
func (c *Client) Start(ctx context.Context, spec Spec) (*Process, error) {
	config := &processpb.ProcessConfig{Cmd: spec.Cmd, Args: spec.Args, Envs: spec.Env}
	if spec.Dir != "" {
		config.Cwd = &spec.Dir
	}
	msg := &processpb.StartRequest{Process: config, Stdin: &spec.Stdin}
	if spec.TTY != nil {
		msg.Pty = terminal(*spec.TTY)
	}
	req := request(c, spec.User, msg)
	utf8text.EscapeStart(req.Header(), msg)
	req.Header().Set("Keepalive-Ping-Interval", keepaliveSeconds)
	guestwire.SetWaitDelay(req.Header(), spec.WaitDelay)
	guestwire.SetHangup(req.Header(), spec.Hangup)
	guestwire.SetBinary(req.Header(), spec.Binary)
	if spec.Timeout > 0 {
		ms := max(spec.Timeout.Milliseconds(), 1)
		req.Header().Set("Connect-Timeout-Ms", strconv.FormatInt(ms, 10))
	}
	ctx, cancel := bounded(ctx, spec.Timeout)
	stream, err := c.rpc.Start(ctx, req)
	if err != nil {
		cancel()
		return nil, silentError(ctx, startFault(err))
	}
	p, err := c.begin(ctx, startStream{stream}, spec.User, spec.TTY != nil, cancel)
	if err != nil {
		return nil, silentError(ctx, startFault(err))
	}
	return p, nil
}

// Attach follows a process that already runs. Earlier output is not available.
func (c *Client) Attach(ctx context.Context, pid uint32, user string) (*Process, error) {
	req := request(c, user, &processpb.ConnectRequest{Process: selectPID(pid)})
	req.Header().Set("Keepalive-Ping-Interval", keepaliveSeconds)
	ctx, cancel := bounded(ctx, 0)
	stream, err := c.rpc.Connect(ctx, req)
	if err != nil {
		cancel()
		return nil, toFault(err)
	}
	p, err := c.begin(ctx, connectStream{stream}, user, false, cancel)
	return p, toFault(err)
}

// AttachTerminal is Attach for a process on a terminal.
func (c *Client) AttachTerminal(ctx context.Context, pid uint32, user string) (*Process, error) {
	p, err := c.Attach(ctx, pid, user)
	if err == nil {
		p.tty = true
	}
	return p, err
}

// begin waits for the first event of a stream.
func (c *Client) begin(ctx context.Context, stream eventStream, user string, tty bool, cancel context.CancelFunc) (*Process, error) {
	p := &Process{client: c, user: user, tty: tty, stream: stream, ctx: ctx, cancel: cancel}
	if !stream.Receive() {
		err := stream.Err()
		p.Close()
		if err == nil {
			return nil, fault.New(fault.Internal, "bad_stream", "the guest's stream ended before the program started")
		}
		return nil, err
	}
	start := stream.Event().GetStart()
	if start == nil {
		p.Close()
		return nil, fault.New(fault.Internal, "bad_stream", "the guest's stream does not begin with a start")
	}
	p.pid = start.GetPid()
	p.bodies = stream.ResponseHeader().Get(guestwire.StdinHeader) == guestwire.StdinBody
	return p, nil
}

// List returns the running programs that were started through the service.
func (c *Client) List(ctx context.Context) ([]Info, error) {
	rpc := guestwire.Process(c.doer, c.base, guestwire.Running)
	resp, err := rpc.List(ctx, request(c, "", &processpb.ListRequest{}))
	if err != nil {
		return nil, toFault(err)
	}
	infos := make([]Info, 0, len(resp.Msg.GetProcesses()))
	for _, p := range resp.Msg.GetProcesses() {
		infos = append(infos, Info{
			PID: p.GetPid(), Tag: p.GetTag(),
			Cmd: p.GetConfig().GetCmd(), Args: p.GetConfig().GetArgs(), Dir: p.GetConfig().GetCwd(),
		})
	}
	return infos, nil
}

// PID returns the program's process ID inside.
func (p *Process) PID() uint32 { return p.pid }

// Write sends one piece of input and returns when the guest has received it.
func (p *Process) Write(ctx context.Context, data []byte) error {
	input := &processpb.ProcessInput{Input: &processpb.ProcessInput_Stdin{Stdin: data}}
	if p.tty {
		input = &processpb.ProcessInput{Input: &processpb.ProcessInput_Pty{Pty: data}}
	}
	_, err := p.client.rpc.SendInput(ctx, request(p.client, p.user, &processpb.SendInputRequest{Process: selectPID(p.pid), Input: input}))
	return toFault(err)
}

// CloseStdin closes the program's input.
func (p *Process) CloseStdin(ctx context.Context) error {
	_, err := p.client.rpc.CloseStdin(ctx, request(p.client, p.user, &processpb.CloseStdinRequest{Process: selectPID(p.pid)}))
	return toFault(err)
}

// Signal signals the program and its group.
func (p *Process) Signal(ctx context.Context, sig syscall.Signal) error {
	return p.client.Signal(ctx, p.pid, sig)
}

// killTimeout limits the time for a kill.
const killTimeout = 5 * time.Second

// Kill kills the program and its group, even if ctx is done.
func (p *Process) Kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	return p.Signal(ctx, syscall.SIGKILL)
}

// Signal signals a program by its number.
func (c *Client) Signal(ctx context.Context, pid uint32, sig syscall.Signal) error {
	_, err := c.rpc.SendSignal(ctx, request(c, "", &processpb.SendSignalRequest{Process: selectPID(pid), Signal: processpb.Signal(sig)}))
	return toFault(err)
}

// Resize changes the terminal's size.
func (p *Process) Resize(ctx context.Context, size Size) error {
	_, err := p.client.rpc.Update(ctx, request(p.client, p.user, &processpb.UpdateRequest{Process: selectPID(p.pid), Pty: terminal(size)}))
	return toFault(err)
}

// Close ends the stream. The program continues.
func (p *Process) Close() {
	p.once.Do(func() {
		p.cancel()
		// The stream is being closed on purpose, so the error does not matter.
		_ = p.stream.Close()
	})
}

func terminal(s Size) *processpb.PTY {
	return &processpb.PTY{Size: &processpb.PTY_Size{Cols: uint32(s.Cols), Rows: uint32(s.Rows)}}
}

func selectPID(pid uint32) *processpb.ProcessSelector {
	return &processpb.ProcessSelector{Selector: &processpb.ProcessSelector_Pid{Pid: pid}}
}

func request[T any](c *Client, user string, msg *T) *connect.Request[T] {
	req := connect.NewRequest(msg)
	c.setHeaders(req.Header(), user)
	return req
}

// setHeaders sets the headers of every request.
func (c *Client) setHeaders(h http.Header, user string) {
	maps.Copy(h, c.header)
	if user != "" {
		h.Set("Authorization", basic(user))
	}
}
