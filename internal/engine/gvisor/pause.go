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

// resumeTimeout bounds how long a call to a sandbox that was to be replaced may take before the
// sandbox continues.
const resumeTimeout = 5 * time.Second

// pauseWithin pauses a sandbox. It ignores the caller's context, because only a sandbox that is
// known to be paused can be resumed. A sandbox that pauses too late is resumed at once.
func (b *instance) pauseWithin(within time.Duration) error {
	answer := make(chan error, 1)
	go func() { answer <- b.conns.call(context.Background(), boot.ContMgrPause, nil, nil) }()
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case err := <-answer:
		return err
	case <-late.C:
	}
	go func() {
		if err := <-answer; err != nil {
			return // the end of its kernel also ends this call
		}
		if err := b.resume(context.Background()); err != nil {
			b.e.log.Error("cannot resume a sandbox that paused too late", "sandbox", b.rec.ID, "err", err)
		}
	}()
	return fmt.Errorf("the sandbox did not pause within %v", within)
}

// resumeWithin resumes a sandbox after a failed replacement. Its replacement may have written
// events under the next numbers. Even if the events cannot be continued, the sandbox is resumed,
// with a separate time limit.
func (b *instance) resumeWithin(ctx context.Context, spec engine.Spec, within time.Duration) error {
	observing, cancel := context.WithTimeout(ctx, within)
	err := b.observeAgain(observing, spec)
	cancel()
	return errors.Join(err, b.resume(ctx))
}

func (b *instance) resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, resumeTimeout)
	defer cancel()
	return b.conns.call(ctx, boot.ContMgrResume, nil, nil)
}
