package approval

import (
	"context"
	"sync"
	"time"
)

// heartbeat is the interval at which waiting callers poll the store, because another process may
// change it and requests may expire.
const heartbeat = time.Second

// pulse wakes waiting goroutines. Changes by this process wake them at once. One goroutine polls
// for all other changes, and only while there are waiters.
type pulse struct {
	sweep func(context.Context) (int64, error)

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	waiting int
	stop    context.CancelFunc // ends the goroutine; nil while there is none
	closed  bool
	ended   chan struct{}
}

func (p *pulse) init(sweep func(context.Context) (int64, error)) {
	p.sweep, p.changed, p.ended = sweep, make(chan struct{}), make(chan struct{})
}

// wake wakes all waiting goroutines.
func (p *pulse) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

// close ends all waiting calls permanently.
func (p *pulse) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		close(p.ended)
	}
}

// turn is the position of one waiter. It stores the last change that the waiter has seen, so that
// the waiter misses no change between reading and waiting.
type turn struct {
	pulse *pulse
	seen  chan struct{}
}

// join returns a turn. Data that is read after it counts as seen.
func (p *pulse) join() (*turn, func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting++; p.waiting == 1 {
		ctx, stop := context.WithCancel(context.Background())
		p.stop = stop
		go p.run(ctx)
	}
	return &turn{p, p.changed}, sync.OnceFunc(p.leave)
}

func (p *pulse) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting--; p.waiting == 0 {
		p.stop()
		p.stop = nil
	}
}

// wait returns true after the next change, false if ctx or the pulse ended.
func (t *turn) wait(ctx context.Context) bool {
	select {
	case <-t.seen:
	case <-ctx.Done():
		return false
	case <-t.pulse.ended:
		return false
	}
	t.pulse.mu.Lock()
	defer t.pulse.mu.Unlock()
	t.seen = t.pulse.changed
	return true
}

// run polls the store at each heartbeat. A failed poll also wakes the waiters, which read the store
// themselves and return the error.
func (p *pulse) run(ctx context.Context) {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	last := int64(-1)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		n, err := p.sweep(ctx)
		if ctx.Err() == nil && (err != nil || n != last) {
			last = n
			p.wake()
		}
	}
}
