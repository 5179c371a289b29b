package v1

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/ingress/observe"
	"github.com/crannog/crannog/internal/frontend/ingress/redaction"
	"github.com/crannog/crannog/internal/guest/client"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/utf8text"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/telemetry"
)

// defaultOutput is the default limit of output.
const defaultOutput = 1 << 20

// outputMemory bounds the output of all calls in memory. Otherwise many callers with large limits
// could use up the server's memory.
const outputMemory = 256 << 20

// shareKey is the context key of a call's share of that memory.
type shareKey struct{}

// Guests connects to the servers inside sandboxes.
type Guests interface {
	// Dial opens a stream to a port inside. For an ended sandbox the error is NotFound; for one
	// that is being paused or resumed, or has been replaced, a Conflict.
	Dial(ctx context.Context, id string, port int) (net.Conn, error)
	// Redactor returns the redactor for all output of the sandbox. After an error no output may be
	// passed on. Its errors are those of Dial.
	Redactor(ctx context.Context, id string) (*sandbox.Redactor, error)
	// Gone returns a channel that is closed when the sandbox's instance ends, or nil for an unknown
	// sandbox.
	Gone(id string) <-chan struct{}
}

// execHandlers runs commands in sandboxes.
type execHandlers struct {
	finder  Finder
	states  States // nil resumes no sandbox
	guests  Guests
	denials *denials
	tap     *observe.Tap
	heads   *treeHeads
	output  *client.Budget // holds the output of all calls
}

func (h *execHandlers) register(r *registry) {
	register(r, h.reserveOutput(op("exec", "POST", "/sandboxes/{id}/exec", "Run one command and return its output")), h.exec)
}

// reserveOutput reserves memory for the output of each call until the call ends.
func (h *execHandlers) reserveOutput(o huma.Operation) huma.Operation {
	o.Middlewares = append(o.Middlewares, func(c huma.Context, next func(huma.Context)) {
		share := h.output.Share()
		defer share.Close()
		next(huma.WithValue(c, shareKey{}, share))
	})
	return o
}

type execInput struct {
	Ref
	Body    api.Exec
	RawBody []byte
}

type execOutput struct{ Body api.ExecResult }

func (h *execHandlers) exec(ctx context.Context, caller sandbox.Principal, in *execInput) (*execOutput, error) {
	timeout, err := duration("timeout_seconds", in.Body.TimeoutSeconds)
	if err != nil {
		return nil, err
	}
	// A JSON decoder replaces invalid UTF-8, so another command than the intended one would run.
	if which := utf8text.FindInvalid(in.RawBody); which != "" {
		return nil, fault.Newf(fault.Invalid, CodeNotUTF8, "%s is not UTF-8", which).WithHint("set encoding to base64, and write cmd, stdin, cwd and the values of env so")
	}
	if err := decodeTexts(&in.Body); err != nil {
		return nil, err
	}
	// JSON null decodes to an empty array.
	if len(in.Body.Cmd) == 0 || in.Body.Cmd[0] == "" {
		return nil, fault.New(fault.Invalid, "empty_command", "cmd is empty")
	}
	for try := 1; ; try++ {
		out, err := h.execOnce(ctx, caller, in, timeout)
		// A sandbox that ended before anything was sent to it may be about to run again, so the
		// call waits for it.
		if fault.CodeOf(err) != sandbox.CodeChanged || try == maxStarts {
			return out, err
		}
	}
}

// maxStarts bounds how often a command retries while a sandbox is being changed again and again.
const maxStarts = 3

func (h *execHandlers) execOnce(ctx context.Context, caller sandbox.Principal, in *execInput, timeout time.Duration) (*execOutput, error) {
	sb, err := h.runnable(ctx, caller, in.ID)
	if err != nil {
		return nil, err
	}
	if timeout == 0 {
		timeout = sb.Limits.CommandTimeout
	}
	redactor, err := h.guests.Redactor(ctx, sb.ID)
	if err != nil {
		return nil, err
	}
	guest, done := h.guest(caller, sb, redactor)
	defer done()
	spec := client.Spec{
		Cmd: in.Body.Cmd[0], Args: in.Body.Cmd[1:], Env: telemetry.Environment(ctx, in.Body.Env), Dir: in.Body.Cwd, User: in.Body.User,
		Stdin: in.Body.Stdin != "", Timeout: timeout,
	}
	if in.Body.DetachChildren {
		spec.WaitDelay = client.DetachDelay
	}
	// No caller gets more than the sandbox's own limit, because the answer is held in the server's
	// memory.
	limit := orDefault(sb.Limits.OutputBytes, defaultOutput)
	if requested := in.Body.OutputBytes; requested > 0 {
		limit = min(requested, limit)
	}
	share, ok := ctx.Value(shareKey{}).(*client.Share)
	if !ok {
		return nil, errors.New("too many calls of exec hold output in memory")
	}
	started := h.denials.mark(sb)
	run := &commandRun{
		handlers: h, caller: caller, sb: sb, gone: h.guests.Gone(sb.ID),
		client: guest, out: client.NewCollectorIn(share, limit),
	}
	result, err := run.do(ctx, spec, in.Body.Stdin)
	if err != nil {
		return nil, err
	}
	result.Denied = h.denials.since(ctx, caller, sb, started, result.ExitCode != 0)
	result.Checkpoint = h.heads.newest()
	return &execOutput{result}, nil
}

// idleTime is how long an idle connection of one call is kept.
const idleTime = 2 * time.Second

// guest returns a client of the guest inside, without the proxy: the caller is authenticated
// already. The guest's output is redacted, and entries are written.
func (h *execHandlers) guest(caller sandbox.Principal, sb sandbox.Sandbox, redactor *sandbox.Redactor) (*client.Client, func()) {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return h.guests.Dial(ctx, sb.ID, guestboot.Port)
		},
		DisableCompression: true,
		// An attacker who has replaced the guest may send large headers.
		MaxResponseHeaderBytes: 64 << 10,
		// A connection may become idle just after the caller closed idle ones. Without a timeout of
		// its own it would stay open for ever.
		IdleConnTimeout: idleTime,
	}
	header := http.Header{"X-Access-Token": {sb.AccessToken}}
	masked := redaction.Transport(transport, guestboot.Port, redactor)
	tapped := h.tap.Transport(masked, observe.Call{
		Sandbox: sb.ID, Port: guestboot.Port, Actor: caller.Actor(), How: observe.HowExec, Token: sb.AccessToken, Mask: redactor,
	})
	return client.New(&http.Client{Transport: tapped, CheckRedirect: noRedirect}, "http://guest", header), transport.CloseIdleConnections
}

// noRedirect makes a client follow no redirect, because a hostile guest could choose its target.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// commandRun is one command from start to answer.
type commandRun struct {
	handlers *execHandlers
	caller   sandbox.Principal
	sb       sandbox.Sandbox
	gone     <-chan struct{} // of its instance; nil if not known
	client   *client.Client
	out      *client.Collector
}

func (r *commandRun) do(ctx context.Context, spec client.Spec, stdin string) (api.ExecResult, error) {
	started := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p, err := r.start(ctx, spec)
	if err != nil {
		return r.explainEnd(ctx, r.out.Result(client.Exit{}), err)
	}
	var feeding sync.WaitGroup
	if stdin != "" {
		feeding.Go(func() { p.Feed(ctx, strings.NewReader(stdin)) })
	}
	exit, err := p.Stream(r.out.Stdout(), r.out.Stderr())
	if err != nil {
		err = r.abandon(ctx, p, err)
	}
	cancel()
	feeding.Wait()
	result := r.out.Result(exit)
	result.DurationMS = time.Since(started).Milliseconds()
	if err != nil {
		return r.explainEnd(ctx, result, err)
	}
	return result, nil
}

// startGrace is how long a start may continue after its caller has left.
const startGrace = 10 * time.Second

// start starts the command. If the caller leaves during the start, the start is not interrupted:
// the command may run already, and only the answer contains its PID, with which it can be killed.
func (r *commandRun) start(ctx context.Context, spec client.Spec) (*client.Process, error) {
	stream, cut := context.WithCancel(context.WithoutCancel(ctx))
	late := context.AfterFunc(ctx, func() { time.AfterFunc(startGrace, cut) })
	p, err := r.client.Start(stream, spec)
	if err != nil {
		late()
		cut()
		return nil, err
	}
	late()
	context.AfterFunc(ctx, cut)
	return p, nil
}

// abandon kills the command of a caller that has left, because its output would not be read.
func (r *commandRun) abandon(ctx context.Context, p *client.Process, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if killErr := p.Kill(ctx); killErr != nil && fault.KindOf(killErr) != fault.NotFound {
		return errors.Join(err, killErr)
	}
	return err
}

// explainEnd returns the answer for a broken stream. If the sandbox was ended by its memory limit
// or lifetime, that is a result. Otherwise it is an error.
func (r *commandRun) explainEnd(ctx context.Context, result api.ExecResult, err error) (api.ExecResult, error) {
	if fault.CodeOf(err) != client.CodeLost {
		return result, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	// A sandbox that was rolled back has another channel by now.
	if r.gone != nil {
		select {
		case <-r.gone:
		case <-ctx.Done():
			return result, err
		}
	}
	sb, getErr := r.handlers.finder.Get(ctx, r.caller, r.sb.ID)
	switch {
	case getErr != nil:
		return result, err
	case sb.State == sandbox.Running && r.gone == nil: // the reason is not known
		return result, err
	case sb.State != sandbox.Stopped && sb.State != sandbox.Stopping:
		return result, r.changed(sb, err)
	case sb.Reason == string(engine.ReasonOOM):
		result.ExitCode, result.Hit = 128+int(syscall.SIGKILL), api.HitOOM
	case sb.Reason == sandbox.ReasonTimeout:
		result.ExitCode, result.Hit = client.CodeTimeout, api.HitTimeout
	default:
		return result, err
	}
	return result, nil
}

// changed is the error of a command whose sandbox was paused or rolled back.
func (r *commandRun) changed(sb sandbox.Sandbox, cause error) error {
	return fault.Wrap(cause, fault.Unavailable, client.CodeLost,
		fmt.Sprintf("sandbox %s was paused or rolled back while the command ran, and is %s now", sb.ID, sb.State)).
		WithHint("the command may have run partly; check before running it again")
}

func orDefault(v, def int64) int64 {
	if v > 0 {
		return v
	}
	return def
}
