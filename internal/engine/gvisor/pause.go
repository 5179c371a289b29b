package gvisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gvisor.dev/gvisor/runsc/boot"

	"github.com/crannog/crannog/internal/engine"
)

// pausePatience bounds how long a sandbox may take to stand still.
const pausePatience = time.Minute

// resumePatience bounds how long a call to a sandbox that was to be replaced may take before the
// sandbox continues.
const resumePatience = 5 * time.Second

// standStill makes a sandbox stand still. The caller's context does not end it, because
// only a sandbox that is known to stand still can be told to continue. A sandbox that stands
// still too late is told to continue at once.
func (b *instance) standStill(within time.Duration) error {
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
			return // the end of its kernel ends this call as well
		}
		if err := b.resume(context.Background()); err != nil {
			b.e.log.Error("a sandbox that stood still too late does not go on", "sandbox", b.rec.ID, "err", err)
		}
	}()
	return fmt.Errorf("the sandbox does not stand still within %v", within)
}

// resumeWithin lets a sandbox continue that was to be replaced. The sandbox in its place may have
// written events, and has used their numbers. Even if those cannot be continued, the sandbox is
// resumed, with a time limit of its own.
func (b *instance) resumeWithin(ctx context.Context, spec engine.Spec, within time.Duration) error {
	observing, cancel := context.WithTimeout(ctx, within)
	err := b.observeAgain(observing, spec)
	cancel()
	return errors.Join(err, b.resume(ctx))
}

func (b *instance) resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, resumePatience)
	defer cancel()
	return b.conns.call(ctx, boot.ContMgrResume, nil, nil)
}
