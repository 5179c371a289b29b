package warmpool

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/sandbox"
)

// task is one probe of a warm sandbox, or another action on it without a caller.
type task struct {
	over chan struct{}
	err  error // set before over is closed
}

// running reports whether the probe has started and not finished. A nil probe counts
// as finished.
func (l *task) running() bool {
	if l == nil {
		return false
	}
	select {
	case <-l.over:
		return false
	default:
		return true
	}
}

// wait waits until the task is over, and returns whether it succeeded.
func (l *task) wait(ctx context.Context) error {
	if l == nil {
		return nil
	}
	select {
	case <-l.over:
		return l.err
	case <-ctx.Done():
		return &untouchedError{sandbox.Canceled(context.Cause(ctx))}
	}
}

// look probes a warm sandbox, and postpones its end.
func (p *Pool) probe(w *warm, l *task) {
	err := w.guest.postpone(p.ctx, time.Now().Add(waitFor))
	l.err = err
	close(l.over)
	if err == nil || p.ctx.Err() != nil {
		return
	}
	if p.remove(w) {
		p.deps.Log.Warn("warm sandbox does not answer", "sandbox", w.id, "err", err)
		p.discard(w)
	}
}
