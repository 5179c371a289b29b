package warmpool

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/sandbox"
)

// task is one probe of a warm sandbox, or another action on it without a caller.
type task struct {
	done chan struct{}
	err  error // set before done is closed
}

// running reports whether the task has started and not finished. A nil task counts as finished.
func (l *task) running() bool {
	if l == nil {
		return false
	}
	select {
	case <-l.done:
		return false
	default:
		return true
	}
}

// wait waits until the task is done, and returns its error.
func (l *task) wait(ctx context.Context) error {
	if l == nil {
		return nil
	}
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return &untouchedError{sandbox.Canceled(context.Cause(ctx))}
	}
}

// probe checks that a warm sandbox answers, and postpones its end.
func (p *Pool) probe(w *warm, l *task) {
	err := w.guest.postpone(p.ctx, time.Now().Add(warmLifetime))
	l.err = err
	close(l.done)
	if err == nil || p.ctx.Err() != nil {
		return
	}
	if p.remove(w) {
		p.deps.Log.Warn("warm sandbox does not answer", "sandbox", w.id, "err", err)
		p.discard(w)
	}
}
