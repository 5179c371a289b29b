package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/crannog/crannog/api"
)

// queueEvery is how often the position in the server's queue is read.
const queueEvery = time.Second

// queueProgress is progress for a request that may wait in the server's queue: it also shows the
// request's position and the expected wait. own selects the request.
func (a *app) queueProgress(ctx context.Context, c *connection, text string, own func(api.QueuedStart) bool) (stop func()) {
	p := a.newProgress()
	if p == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		timer := time.NewTimer(progressDelay)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			line := text
			// With an older server, or one that cannot be reached, no position is shown.
			if q, err := c.Queue(ctx); err == nil {
				line += placeIn(q, own)
			}
			p.show(line)
			timer.Reset(queueEvery)
		}
	}()
	return func() {
		cancel()
		<-done
		p.end()
	}
}

// aboutSandbox selects requests about one sandbox.
func aboutSandbox(id string) func(api.QueuedStart) bool {
	return func(r api.QueuedStart) bool { return r.SandboxID == id }
}

// placeIn describes a request's position. It returns "" if the request does not wait.
func placeIn(q api.Queue, own func(api.QueuedStart) bool) string {
	for _, r := range q.Requests {
		if !own(r) {
			continue
		}
		place := fmt.Sprintf(" (place %d of %d in the queue", r.Place, max(q.Waiting, r.Place))
		if r.ExpectedSeconds > 0 {
			expected := time.Duration(r.ExpectedSeconds * float64(time.Second)).Round(time.Second)
			place += fmt.Sprintf(", about %s", max(expected, time.Second))
		}
		return place + ")"
	}
	return ""
}
