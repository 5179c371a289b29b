package cli

import (
	"context"
	"time"

	"github.com/crannog/crannog"
)

// A sandbox that belongs to this process ends soon after it, even if we are
// killed: its time is short, and we prolong it.
const (
	leaseTime  = 5 * time.Minute
	leaseEvery = time.Minute
)

// hold prolongs the lease until the returned function is called.
func (a *app) hold(ctx context.Context, sb *crannog.Sandbox) func() {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(leaseEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if err := sb.Extend(ctx, leaseTime); err != nil && ctx.Err() == nil && a.verbose {
				a.note("the sandbox's time was not prolonged: %v", err)
			}
		}
	}()
	return func() { cancel(); <-done }
}
