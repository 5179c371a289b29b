package cli

import (
	"context"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/host/ticker"
)

// A sandbox that belongs to this process ends soon after it, even if we are
// killed: its time is short, and we prolong it.
const (
	leaseTime  = 5 * time.Minute
	leaseEvery = time.Minute
)

// hold prolongs the lease until the returned function is called.
func (a *app) hold(ctx context.Context, sb *crannog.Sandbox) func() {
	return ticker.Every(ctx, leaseEvery, func(ctx context.Context) {
		if err := sb.Extend(ctx, leaseTime); err != nil && ctx.Err() == nil && a.verbose {
			a.note("the sandbox's time was not prolonged: %v", err)
		}
	})
}
