package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/client"
	"github.com/crannog/crannog/internal/guest/control"
	"github.com/crannog/crannog/internal/guest/files"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
)

// codeNotReady is the code of the error for a template's program that does not become ready.
const codeNotReady = "template_not_ready"

const (
	// startTimeout is the maximum time limit of a command, because the template's program ends with
	// its sandbox.
	startTimeout = 100 * 24 * time.Hour
	// readyEvery is how often the ready command is run, and readyTimeout how long each run may
	// take.
	readyEvery   = 100 * time.Millisecond
	readyTimeout = 30 * time.Second
	// maxShownOutput is how much of the end of a program's output an error shows.
	maxShownOutput = 2 << 10
)

// serve starts the template's program in a booted instance, and waits until it is ready. In an
// instance that was restored from memory, the program is already running.
func (b *boot) serve(ctx context.Context) error {
	st := b.row.Base.Start
	if st == nil || b.from.reading || b.state != nil && b.state.Dir != "" {
		return nil
	}
	if b.detached != nil {
		ctx = b.detached
	}
	err := b.serveIn(ctx, st)
	if err != nil && b.from.replace {
		// The old instance has ended, and a new one without its program must not continue.
		err = fault.Wrap(err, fault.KindOf(err), codeReplaceFailed, fault.PublicText(err))
	}
	return err
}

func (b *boot) serveIn(ctx context.Context, st *sandbox.Start) error {
	e, err := b.s.engines.Of(b.row.Engine)
	if err != nil {
		return err
	}
	transport := control.Once(func(ctx context.Context) (net.Conn, error) { return e.Dial(ctx, b.row.ID, guestboot.Port) })
	defer transport.CloseIdleConnections()
	// Redirects are not followed, because a program that has replaced the guest could choose their
	// target.
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	inside := &templateProgram{
		client: client.New(&http.Client{Transport: transport, CheckRedirect: noRedirect}, "http://guest", http.Header{files.TokenHeader: {b.row.AccessToken}}),
		dir:    b.row.Base.DefaultDir,
	}
	if b.attachment != nil && len(b.attachment.Secrets) > 0 {
		inside.hideOutput = true // its output may show what is redacted elsewhere
	}
	ctx, cancel := context.WithTimeoutCause(ctx, st.ReadyTimeout(),
		fault.Newf(fault.Timeout, codeNotReady, "the program of the template was not ready within %s", st.ReadyTimeout()))
	defer cancel()
	return inside.run(ctx, st)
}

// templateProgram is the template's program in a sandbox while it is being started.
type templateProgram struct {
	client     *client.Client
	dir        string
	hideOutput bool
	output     tail
}

// run starts the program and runs the ready command until it succeeds.
func (v *templateProgram) run(ctx context.Context, st *sandbox.Start) error {
	program, err := v.start(ctx, st.Command, startTimeout)
	if err != nil {
		return err
	}
	ended := make(chan client.Exit, 1)
	streamed := make(chan struct{})
	go func() {
		defer close(streamed)
		if exit, err := program.Stream(&v.output, &v.output); err == nil {
			ended <- exit
		}
	}()
	err = v.awaitReady(ctx, st.Ready, ended)
	program.Close() // the program continues
	<-streamed
	if err == nil {
		return nil
	}
	if text := v.output.text(); text != "" && !v.hideOutput {
		err = fault.Wrap(err, fault.KindOf(err), fault.CodeOf(err), fault.PublicText(err)+"; it printed: "+text)
	}
	return err
}

func (v *templateProgram) start(ctx context.Context, command []string, life time.Duration) (*client.Process, error) {
	p, err := v.client.Start(ctx, client.Spec{Cmd: command[0], Args: command[1:], Dir: v.dir, Timeout: life})
	if err != nil {
		return nil, fmt.Errorf("start %q: %w", command[0], err)
	}
	return p, nil
}

// awaitReady runs the ready command until it succeeds, the program fails or the context ends.
func (v *templateProgram) awaitReady(ctx context.Context, ready []string, ended <-chan client.Exit) error {
	if len(ready) == 0 {
		return nil
	}
	again := time.NewTicker(readyEvery)
	defer again.Stop()
	for {
		code, err := v.try(ctx, ready)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case code == 0:
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case exit := <-ended:
			// A program that has put itself into the background has succeeded.
			if exit.Code != 0 {
				return fault.Newf(fault.Invalid, codeNotReady, "the program of the template ended with exit code %d before it was ready", exit.Code)
			}
		case <-again.C:
		}
	}
}

func (v *templateProgram) try(ctx context.Context, ready []string) (int, error) {
	p, err := v.start(ctx, ready, readyTimeout)
	if err != nil {
		return 0, err
	}
	exit, err := p.Stream(io.Discard, io.Discard)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, p.Kill(ctx))
	}
	return exit.Code, err
}

// tail keeps the end of a program's output. One goroutine at a time writes it.
type tail struct{ end []byte }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.end = append(t.end, p...)
	if n := len(t.end) - maxShownOutput; n > 0 {
		t.end = append(t.end[:0], t.end[n:]...)
	}
	return len(p), nil
}

func (t *tail) text() string { return strings.TrimSpace(strings.ToValidUTF8(string(t.end), "?")) }
