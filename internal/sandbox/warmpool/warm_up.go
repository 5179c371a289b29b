package warmpool

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/client"
	"github.com/crannog/crannog/internal/guest/files"
	"github.com/crannog/crannog/internal/sandbox/admission"
)

// A started sandbox gives back memory that only its start needed. Its first command needs much of
// that again, and so takes twice as long. Therefore a warm sandbox executes, once and without a
// caller, a typical first command. It gets no data beyond that of its creation. This is its
// warm-up.

// loginShell is the program of the warm-up: clients start commands with one.
var loginShell = client.Spec{Cmd: "/bin/bash", Args: []string{"-l", "-c", "true"}, Timeout: requestTimeout}

// warmUp is the state of a warm sandbox's warm-up.
type warmUp struct {
	config  guest.Config
	since   time.Time // the sandbox is in the pool
	started bool      // guarded by Pool.mu
	task
}

func newWarmUp(config guest.Config) *warmUp {
	config.Renew, config.Files, config.Preload = guest.Claimed, nil, nil
	return &warmUp{config: config, since: time.Now(), task: task{done: make(chan struct{})}}
}

// running reports whether the warm-up has begun and not finished. Pool.mu must be held.
func (r *warmUp) running() bool { return r.started && r.task.running() }

// nextWarmUp returns a sandbox that is due for its warm-up, with the turn to run it.
func (p *Pool) nextWarmUp(now time.Time) (*warm, *warmUp, *admission.Turn) {
	if p.options.WarmUpAfter <= 0 || p.deps.Instances.Busy() {
		return nil, nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pace.Left(now) > 0 {
		return nil, nil, nil
	}
	for _, k := range p.kinds {
		for _, w := range k.ready {
			if r := w.warmUp; !r.started && now.Sub(r.since) >= p.options.WarmUpAfter {
				turn := p.deps.Admission.Try()
				if turn == nil {
					return nil, nil, nil
				}
				r.started = true
				return w, r, turn
			}
		}
	}
	return nil, nil, nil
}

// runWarmUp executes the warm-up of a warm sandbox, which cannot be acquired until then. A sandbox
// that does not finish in time is never handed out, because the program might still run after a
// caller owns the sandbox.
func (p *Pool) runWarmUp(w *warm, r *warmUp) {
	started := time.Now()
	r.config.EndAt = started.Add(warmLifetime) // it may have been postponed
	ran, err := w.guest.run(p.ctx, r.config.AccessToken)
	if err == nil {
		err = w.guest.post(p.ctx, guest.PathClaim, r.config)
	}
	r.err = err
	close(r.done)
	if err == nil || p.ctx.Err() != nil {
		p.deps.Log.Debug("warm sandbox has done its warm-up", "sandbox", w.id, "ran", ran, "took", time.Since(started))
		return
	}
	p.deps.Log.Warn("warm sandbox failed its warm-up", "sandbox", w.id, "err", err)
	if p.remove(w) {
		p.discard(w)
	}
}

// awaitTasks waits for the end of a warm-up or probe in progress. Once a sandbox has an owner, the
// pool must not act on it, and in particular must not set a warm sandbox's deadline. No task begins
// in a sandbox that was handed out.
func (w *warm) awaitTasks(ctx context.Context) error {
	if r := w.warmUp; r.started {
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
	return w.probing.wait(ctx)
}

// run runs the program of a warm-up, and reports whether it succeeded, because not every template
// has the program. An error means that it may still be running.
func (l *connection) run(ctx context.Context, token string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	guest := client.New(&http.Client{Transport: l.transport}, "http://guest", http.Header{files.TokenHeader: {token}})
	started, err := guest.Start(ctx, loginShell)
	if err != nil {
		return false, ctx.Err()
	}
	defer started.Close()
	exit, err := started.Stream(io.Discard, io.Discard)
	if err != nil {
		return false, fmt.Errorf("run %s: %w", loginShell.Cmd, err)
	}
	return exit.Code == 0, nil
}
