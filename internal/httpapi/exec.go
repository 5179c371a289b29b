package httpapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/process"
	"github.com/crannog/crannog/internal/sandbox"
)

// defaultOutput bounds the output of a sandbox that names no limit.
const defaultOutput = 1 << 20

type execInput struct {
	ref
	Body api.Exec
}

type execOutput struct{ Body api.ExecResult }

func (s *server) exec(ctx context.Context, who sandbox.Principal, in *execInput) (*execOutput, error) {
	timeout, err := duration("timeout_seconds", in.Body.TimeoutSeconds)
	if err != nil {
		return nil, err
	}
	if in.Body.Cmd[0] == "" {
		return nil, fault.New(fault.Invalid, "empty_command", "cmd names no program")
	}
	sb, err := s.Sandboxes.Get(ctx, who, in.ID)
	if err != nil {
		return nil, err
	}
	if sb.State != sandbox.Running {
		return nil, fault.Newf(fault.Conflict, "not_running", "sandbox %s is %s", sb.ID, sb.State)
	}
	client, done := s.guest(sb)
	defer done()
	spec := process.Spec{
		Cmd: in.Body.Cmd[0], Args: in.Body.Cmd[1:], Env: in.Body.Env, Dir: in.Body.Cwd, User: in.Body.User,
		Stdin: in.Body.Stdin != "", Timeout: timeout,
	}
	// No caller gets more than the sandbox's own limit: the answer is held
	// in the server's memory.
	limit := orDefault(sb.Limits.OutputBytes, defaultOutput)
	if asked := in.Body.OutputBytes; asked > 0 {
		limit = min(asked, limit)
	}
	run := &oneRun{server: s, who: who, sb: sb, client: client, out: newCollector(limit)}
	result, err := run.do(ctx, spec, in.Body.Stdin)
	if err != nil {
		return nil, err
	}
	return &execOutput{result}, nil
}

// guest returns a client of the guest inside, past the proxy: the caller is
// known already.
func (s *server) guest(sb sandbox.Sandbox) (*process.Client, func()) {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return s.Traffic.Dial(ctx, sb.ID, engine.GuestPort)
		},
		DisableCompression: true,
	}
	header := http.Header{"X-Access-Token": {sb.AccessToken}}
	return process.New(&http.Client{Transport: transport}, "http://guest", header), transport.CloseIdleConnections
}

// oneRun is one command from start to answer.
type oneRun struct {
	server *server
	who    sandbox.Principal
	sb     sandbox.Sandbox
	client *process.Client
	out    *collector
}

func (r *oneRun) do(ctx context.Context, spec process.Spec, stdin string) (api.ExecResult, error) {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p, err := r.client.Start(ctx, spec)
	if err != nil {
		return api.ExecResult{}, err
	}
	var feeding sync.WaitGroup
	if stdin != "" {
		feeding.Go(func() { feed(ctx, p, stdin) })
	}
	exit, err := p.Pump(r.out.stream(&r.out.stdout), r.out.stream(&r.out.stderr))
	if err != nil {
		err = r.abandon(ctx, p, err)
	}
	cancel()
	feeding.Wait()
	result := r.out.result()
	result.DurationMS = time.Since(began).Milliseconds()
	if err != nil {
		return r.fate(ctx, result, err)
	}
	result.ExitCode = exit.Code
	result.Hit = r.hit(exit, result)
	return result, nil
}

// abandon kills the command of a caller that went away, so that nobody pays
// for an answer that nobody reads.
func (r *oneRun) abandon(ctx context.Context, p *process.Process, err error) error {
	if ctx.Err() == nil {
		return err
	}
	kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if killErr := p.Signal(kill, syscall.SIGKILL); killErr != nil && fault.KindOf(killErr) != fault.NotFound {
		return errors.Join(err, killErr)
	}
	return err
}

// feed sends input and then its end. A program that ends without reading
// makes Write fail, which is not the caller's concern.
func feed(ctx context.Context, p *process.Process, stdin string) {
	const piece = 32 << 10
	for len(stdin) > 0 {
		n := min(len(stdin), piece)
		if p.Write(ctx, []byte(stdin[:n])) != nil {
			return
		}
		stdin = stdin[n:]
	}
	// See above: a program that has ended needs no end of input.
	_ = p.CloseStdin(ctx)
}

// fate answers for a stream that broke off: a sandbox that the memory limit
// ended is a result, anything else is an error.
func (r *oneRun) fate(ctx context.Context, result api.ExecResult, err error) (api.ExecResult, error) {
	if fault.CodeOf(err) != "stream_lost" {
		return result, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if gone := r.server.Traffic.Gone(r.sb.ID); gone != nil {
		select {
		case <-gone:
		case <-ctx.Done():
			return result, err
		}
	}
	sb, getErr := r.server.Sandboxes.Get(ctx, r.who, r.sb.ID)
	if getErr == nil && sb.Reason == string(engine.ReasonOOM) {
		result.ExitCode = 128 + int(syscall.SIGKILL)
		result.Hit = api.HitOOM
		return result, nil
	}
	return result, err
}

// hit names the limit that a command ran into. Time and output are known;
// disk, processes and memory of a living sandbox are told by the words that
// the C library and the runtimes print for ENOSPC, EAGAIN and ENOMEM, and
// count only if the command failed.
func (r *oneRun) hit(exit process.Exit, result api.ExecResult) string {
	switch {
	case exit.TimedOut:
		return api.HitTimeout
	case exit.Code != 0 && said(result, "No space left on device", "ENOSPC", "Disk quota exceeded"):
		return api.HitDiskFull
	case exit.Code != 0 && said(result, "fork: retry", "Cannot fork", "can't start new thread",
		"fork: Resource temporarily unavailable", "fork failed: resource temporarily unavailable", "BlockingIOError: [Errno 11]"):
		return api.HitPIDs
	case exit.Code != 0 && said(result, "Cannot allocate memory", "MemoryError", "out of memory"):
		return api.HitOOM
	case result.Truncated:
		return api.HitOutput
	}
	return api.HitNone
}

func said(result api.ExecResult, words ...string) bool {
	for _, w := range words {
		if strings.Contains(result.Stderr, w) {
			return true
		}
	}
	return false
}

func orDefault(v, def int64) int64 {
	if v > 0 {
		return v
	}
	return def
}
