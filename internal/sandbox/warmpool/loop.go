package warmpool

import (
	"context"
	"sync"
	"time"
)

// loop is the goroutine that does the warm pool's work one step at a time, and the goroutines that
// it starts.
type loop struct {
	ctx     context.Context // ends with the loop
	stop    context.CancelFunc
	ended   chan struct{}
	wake    chan struct{}
	watches sync.WaitGroup // goroutines that watch warm sandboxes; they may outlast the loop
	fills   sync.WaitGroup // fills in parallel to the loop, which end before it
}

func newLoop() *loop {
	l := &loop{ended: make(chan struct{}), wake: make(chan struct{}, 1)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// run calls step until halt: after wakeNow, and after the delay that step returned.
func (l *loop) run(step func() time.Duration) {
	defer close(l.ended)
	defer l.fills.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.wake:
		case <-timer.C:
		}
		timer.Reset(step())
	}
}

// wakeNow makes the loop take a step now.
func (l *loop) wakeNow() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// halt cancels the steps and returns when the last one has ended.
func (l *loop) halt() {
	l.stop()
	<-l.ended
}
