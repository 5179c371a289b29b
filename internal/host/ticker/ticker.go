// Package ticker owns calling a function at regular intervals in the background.
package ticker

import (
	"context"
	"time"
)

// Every calls do each time d has passed. The returned function stop ends the context of do, and
// waits for a call that is running.
func Every(ctx context.Context, d time.Duration, do func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(d)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			do(ctx)
		}
	}()
	return func() { cancel(); <-done }
}
