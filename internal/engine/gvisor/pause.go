package gvisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gvisor.dev/gvisor/runsc/boot"

	"github.com/crannog/crannog/internal/engine"
)

// pauseTimeout bounds how long a sandbox may take to pause.
const pauseTimeout = time.Minute

// resumeTimeout bounds each call that makes a paused sandbox continue.
const resumeTimeout = 5 * time.Second

// pauseWithin pauses a sandbox. It ignores the caller's context, because only a sandbox that is
// known to be paused can be resumed. A sandbox that pauses too late is resumed at once.
func (b *instance) pauseWithin(timeout time.Duration) error {
	answer := make(chan error, 1)
	go func() { answer <- b.conns.call(context.Background(), boot.ContMgrPause, nil, nil) }()
	late := time.NewTimer(timeout)
	defer late.Stop()
	select {
	case err := <-answer:
		return err
	case <-late.C:
	}
	go func() {
		if err := <-answer; err != nil {
			return // the kernel has ended
		}
		if err := b.resume(context.Background()); err != nil {
			b.e.log.Error("cannot resume a sandbox that paused too late", "sandbox", b.rec.ID, "err", err)
		}
	}()
	return fmt.Errorf("the sandbox did not pause within %v", timeout)
}

// resumeWithin resumes a sandbox after a failed replacement. The replacement may have written
// events under the next numbers, so the sandbox first gets new ones. If that fails or takes longer
// than timeout, the sandbox is resumed all the same.
func (b *instance) resumeWithin(ctx context.Context, spec engine.Spec, timeout time.Duration) error {
	observeCtx, cancel := context.WithTimeout(ctx, timeout)
	err := b.observeAgain(observeCtx, spec)
	cancel()
	return errors.Join(err, b.resume(ctx))
}

// resume resumes a paused sandbox.
func (b *instance) resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, resumeTimeout)
	defer cancel()
	return b.conns.call(ctx, boot.ContMgrResume, nil, nil)
}
