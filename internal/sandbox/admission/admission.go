// Package admission owns the order in which sandboxes are started: how many may start at once on
// this machine, which is next, how long the wait will be, and which requests are refused because
// the wait would be too long.
//
// Starting a sandbox keeps a processor busy. If a hundred start at once, each takes a hundred times
// as long, and all of them reach their time limits together. In a queue the same work takes the
// same time in total, the first caller is served at once, and a request that cannot be served in
// time is refused before it uses any resources.
package admission

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"
)

// Defaults of Options.
const (
	DefaultMaxWaiting = 1000
	DefaultMaxWait    = 5 * time.Minute
	// slotsPerProcessor is the maximum number of sandboxes that start at once for each processor.
	// A start also waits for the disk and for other processes, so one start for each processor
	// would leave processors idle. More than four only make each other slower.
	slotsPerProcessor = 4
	// minBackground is how many pieces of background work may run at once while no caller waits.
	// With only one, loading a language would block the pool for seconds.
	minBackground = 2
)

// Options configure a Queue. The zero value of each field is its default.
type Options struct {
	// AtOnce is how many sandboxes may start at once. Zero begins with the number
	// of processors and adapts to the measured rate.
	AtOnce int
	// MaxWaiting bounds how many callers may wait. One key may have half of them.
	MaxWaiting int
	// MaxWait is the longest expected wait at which a caller is still queued.
	MaxWait time.Duration
	// Machine limits the starts of all processes on this machine together. If it is nil, only those
	// of this Queue are limited.
	Machine *Machine
	// Log receives a message when the number of starts at once changes.
	Log *slog.Logger
	// Now is the clock; nil is the system's.
	Now func() time.Time
}

// Request describes the work to be admitted.
type Request struct {
	// Key identifies the caller. Keys take turns, so that the many requests of one key do not
	// delay the others.
	Key string
	// Label is the caller's name for the request, and Sandbox is the sandbox to start. Both are for
	// display.
	Label, Sandbox string
	// Always queues the request however long the expected wait is. It is for a request whose
	// refusal would lose data.
	Always bool
}

// Queue admits work in order. It is safe for concurrent use.
type Queue struct {
	maxWaiting int
	maxWait    time.Duration
	machine    *Machine
	log        *slog.Logger
	now        func() time.Time

	mu         sync.Mutex
	limit      limit
	service    average // duration of one start
	lines      rotation
	preceding  map[*entry]int // starts of other processes ahead of an admitted caller
	running    int            // callers that were admitted and are not done
	background int            // background work that was admitted and is not done
	totals     Totals
}

// Totals count the work of a Queue since its creation.
type Totals struct {
	Admitted  int64 // callers that were admitted
	Refused   int64 // callers that were refused at once
	Left      int64 // callers that left before their turn
	Completed int64 // starts that succeeded
}

// New returns a Queue without any work.
func New(o Options) *Queue {
	q := &Queue{
		maxWaiting: o.MaxWaiting, maxWait: o.MaxWait, machine: o.Machine, log: o.Log, now: o.Now,
		limit: newLimit(o.AtOnce, runtime.GOMAXPROCS(0)), preceding: make(map[*entry]int),
	}
	if q.maxWaiting == 0 {
		q.maxWaiting = DefaultMaxWaiting
	}
	if q.maxWait == 0 {
		q.maxWait = DefaultMaxWait
	}
	if q.now == nil {
		q.now = time.Now
	}
	if q.log == nil {
		q.log = slog.New(slog.DiscardHandler)
	}
	return q
}

// MaxAtOnce returns the maximum number of sandboxes that may start at once on a machine with the
// given number of processors.
func MaxAtOnce(processors int) int { return max(1, processors) * slotsPerProcessor }

// Turn is the right to start one sandbox.
type Turn struct {
	queue   *Queue
	started time.Time
	caller  bool
	release func()      // releases the machine's slot
	timeout *time.Timer // gives the turn's place to the next caller
	passed  sync.Once   // gives the place away once
	once    sync.Once
}

// Admit waits until the caller may start a sandbox. The caller must end the returned Turn with
// Done. If the queue is full, or the expected wait exceeds MaxWait or the context's deadline, Admit
// fails at once. That error is of kind Exhausted and has the time after which to try again. If the
// context ends first, Admit returns its cause.
func (q *Queue) Admit(ctx context.Context, request Request) (*Turn, error) {
	e, err := q.enter(ctx, request)
	if err != nil {
		return nil, err
	}
	select {
	case <-e.admitted:
	case <-ctx.Done():
		if q.leave(e) {
			return nil, context.Cause(ctx)
		}
		// The caller was admitted at the same moment: pass the turn on.
	}
	t := &Turn{queue: q, caller: true, release: func() {}}
	if err := context.Cause(ctx); err != nil {
		t.Done(false)
		return nil, err
	}
	if q.machine != nil {
		t.release, err = q.machine.acquire(ctx, func(ahead int) { q.setPreceding(e, ahead) })
		q.setPreceding(e, -1)
		if err != nil {
			t.release = func() {}
			t.Done(false)
			return nil, err
		}
	}
	t.started = q.now()
	t.timeout = time.AfterFunc(q.placeTimeout(), t.pass)
	return t, nil
}

// Try admits background work, such as filling the pool, if no caller waits and
// the machine has room, and otherwise returns nil. Background work never waits
// in the queue, so callers always come first.
func (q *Queue) Try() *Turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lines.count > 0 || q.running+q.background >= max(q.limit.now, minBackground) {
		return nil
	}
	t := &Turn{queue: q, release: func() {}}
	if q.machine != nil {
		release := q.machine.try()
		if release == nil {
			return nil
		}
		t.release = release
	}
	q.background++
	return t
}

// Done ends the turn, once. The duration of a successful start is used to estimate the wait of
// queued callers.
func (t *Turn) Done(succeeded bool) {
	t.once.Do(func() {
		if t.timeout != nil {
			t.timeout.Stop()
		}
		if succeeded && t.caller {
			t.queue.recordStart(t.started)
		}
		t.pass()
	})
}

// pass gives the place of this turn to the next caller in the queue.
func (t *Turn) pass() {
	t.passed.Do(func() {
		t.release()
		t.queue.pass(t.caller)
	})
}
