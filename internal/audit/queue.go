package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

const (
	// batchDelay is how long noted entries wait for others to share a write.
	batchDelay = 20 * time.Millisecond
	// retryPause is the pause before a failed write is repeated.
	retryPause = 250 * time.Millisecond

	maxBatch      = 4096
	maxBatchBytes = 8 << 20
	maxQueueBytes = 64 << 20
)

// group has the entries of one call, which are written together or not at all.
type group struct {
	encoded []encodedEntry
	bytes   int
	sign    bool
	done    chan error // nil if no caller waits
}

// queue has groups in order of arrival. One goroutine writes them. It runs only while there are
// groups.
type queue struct {
	write func(batch []encodedEntry, sign bool) (unsigned, err error)
	test  func() error // returns an error if the disk does not accept a write
	limit int
	dir   string

	mu      sync.Mutex
	groups  []*group
	entries int // entries in groups and in the current write
	bytes   int
	running bool
	closed  bool
	failing error     // error of the last write
	tried   time.Time // time of the last write
	probing bool
	urgent  chan struct{} // ends the pause before the next write
	idle    chan struct{} // closed when the goroutine has ended
}

func (q *queue) init(l *Log) {
	q.write, q.test, q.limit, q.dir = l.commit, l.checkSpace, l.opts.Queue, l.dir
	q.urgent = make(chan struct{}, 1)
}

// do queues a group and waits until it is written.
func (q *queue) do(ctx context.Context, g *group) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("write to audit log: %w", err)
	}
	g.done = make(chan error, 1)
	if err := q.put(g); err != nil {
		return err
	}
	select {
	case err := <-g.done:
		return err
	case <-ctx.Done():
	}
	if q.withdraw(g) {
		return fmt.Errorf("write to audit log: %w", ctx.Err())
	}
	return <-g.done // it is being written
}

// flush waits until all groups that are now queued are written.
func (q *queue) flush(ctx context.Context) error {
	q.mu.Lock()
	empty := q.entries == 0 || q.closed
	q.mu.Unlock()
	if empty {
		return nil
	}
	// An empty group is done when all groups before it are written.
	return q.do(ctx, &group{})
}

// put adds a group to the queue. It never blocks.
func (q *queue) put(g *group) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return fault.New(fault.Unavailable, codeUnavailable, "the audit log is closed")
	}
	if g.done == nil && q.failing != nil {
		q.probe()
		return q.failing
	}
	if q.entries+len(g.encoded) > q.limit || q.bytes+g.bytes > maxQueueBytes {
		return fault.Newf(fault.Exhausted, codeUnavailable, "%d entries are already waiting to be written", q.entries).
			WithHint("check the disk of " + q.dir + ": it is too slow for the rate of entries")
	}
	q.groups = append(q.groups, g)
	q.entries += len(g.encoded)
	q.bytes += g.bytes
	if g.done != nil {
		q.wake()
	}
	q.start()
	return nil
}

// probe makes the goroutine test whether the disk is writable again, unless it did so within
// retryPause.
func (q *queue) probe() {
	if time.Since(q.tried) >= retryPause {
		q.probing = true
		q.wake()
		q.start()
	}
}

func (q *queue) wake() {
	select {
	case q.urgent <- struct{}{}:
	default:
	}
}

func (q *queue) start() {
	if !q.running {
		q.running = true
		q.idle = make(chan struct{})
		go q.run(q.idle)
	}
}

// withdraw removes a group whose write has not started.
func (q *queue) withdraw(g *group) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.groups, g)
	if i < 0 {
		return false
	}
	q.groups = slices.Delete(q.groups, i, i+1)
	q.forget(g)
	return true
}

// forget subtracts a group from the totals of the queue.
func (q *queue) forget(g *group) {
	q.entries -= len(g.encoded)
	q.bytes -= g.bytes
}

// run writes until the queue is empty.
func (q *queue) run(idle chan struct{}) {
	defer close(idle)
	for {
		q.mu.Lock()
		if len(q.groups) == 0 && !q.probing || q.closed && q.failing != nil && !q.hasWaiter() {
			q.running = false
			q.mu.Unlock()
			return
		}
		pause := batchDelay
		if q.failing != nil {
			pause = retryPause
		}
		if q.closed || q.probing || q.hasWaiter() {
			pause = 0
		}
		q.mu.Unlock()
		if pause > 0 {
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-q.urgent:
				timer.Stop()
			}
		}
		q.writeBatch()
	}
}

// hasWaiter reports whether a caller is waiting for a queued group.
func (q *queue) hasWaiter() bool {
	return slices.ContainsFunc(q.groups, func(g *group) bool { return g.done != nil })
}

// writeBatch writes the oldest groups, as many as fit into one batch. It passes the result to
// waiting callers, and keeps the other groups queued after a failure.
func (q *queue) writeBatch() {
	q.mu.Lock()
	var encoded []encodedEntry
	count, sign, bytes := 0, false, 0
	for _, g := range q.groups {
		if count > 0 && (len(encoded)+len(g.encoded) > maxBatch || bytes+g.bytes > maxBatchBytes) {
			break
		}
		encoded, sign, bytes = append(encoded, g.encoded...), sign || g.sign, bytes+g.bytes
		count++
	}
	batch := q.groups[:count:count]
	q.groups = q.groups[count:]
	probing := q.probing && count == 0
	q.probing = false
	q.mu.Unlock()

	var unsigned, err error
	if probing {
		err = q.test()
	} else {
		unsigned, err = q.write(encoded, sign)
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	q.failing, q.tried = err, time.Now()
	var requeued []*group
	for _, g := range batch {
		if err != nil && g.done == nil {
			requeued = append(requeued, g) // accepted, so it stays queued until it can be written
			continue
		}
		q.forget(g)
		switch {
		case g.done == nil:
		case g.sign:
			g.done <- cmp.Or(err, unsigned)
		default:
			g.done <- err
		}
	}
	q.groups = append(requeued, q.groups...)
}

func (q *queue) state() (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.entries, q.failing
}

// close writes the remaining groups. Its error has the number of entries that could not be written
// and are lost.
func (q *queue) close() error {
	q.mu.Lock()
	q.closed = true
	idle := q.idle
	if len(q.groups) > 0 {
		// Try one last time, even after failures.
		q.failing = nil
		q.start()
		idle = q.idle
	}
	q.wake()
	q.mu.Unlock()
	if idle != nil {
		<-idle
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.entries > 0 {
		return fmt.Errorf("audit log: %d entries are lost: %w", q.entries, q.failing)
	}
	return nil
}
