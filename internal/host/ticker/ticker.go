// Package ticker owns doing something again and again beside its caller, until it
// is told to stop.
package ticker

import (
	"context"
	"time"
)

// Every does something after each time d, with a context that ends when what is
// returned is called. That waits for what is under way.
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
