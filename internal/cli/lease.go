package cli

import (
	"context"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/host/ticker"
)

// A sandbox of this process ends soon after the process, even if the process is killed: the sandbox
// has a short lifetime, which keepAlive extends.
const (
	leaseTime  = 5 * time.Minute
	leaseEvery = time.Minute
)

// keepAlive extends the sandbox's lifetime until the returned function is called.
func (a runVerbs) keepAlive(ctx context.Context, sb *crannog.Sandbox) func() {
	return ticker.Every(ctx, leaseEvery, func(ctx context.Context) {
		if err := sb.Extend(ctx, leaseTime); err != nil && ctx.Err() == nil && a.verbose {
			a.note("the sandbox's lifetime was not extended: %v", err)
		}
	})
}
