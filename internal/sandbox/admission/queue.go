package admission

import (
	"context"
	"fmt"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// CodeOverloaded is the code of a request that was refused because too many wait.
const CodeOverloaded = "overloaded"

// enter puts a caller into the queue, or refuses it.
func (q *Queue) enter(ctx context.Context, request Request) (*entry, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !request.Always {
		if err := q.checkCapacity(ctx, request.Key); err != nil {
			q.totals.Refused++
			return nil, err
		}
	}
	e := &entry{request: request, since: q.now(), admitted: make(chan struct{})}
	q.lines.add(e)
	q.dispatch()
	return e, nil
}

// Check returns the error with which Admit would refuse a caller now, or nil.
func (q *Queue) Check(ctx context.Context, key string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.checkCapacity(ctx, key)
	if err != nil {
		q.totals.Refused++
	}
	return err
}

// checkCapacity returns an error if the queue is full or the expected wait is too long for a caller
// of that key. q.mu must be held.
func (q *Queue) checkCapacity(ctx context.Context, key string) error {
	if q.lines.count >= q.maxWaiting {
		return q.overloaded(fmt.Sprintf("%d sandboxes are waiting to start, which is the limit", q.lines.count), q.lines.count/4)
	}
	if count := q.lines.waiting(key); count >= (q.maxWaiting+1)/2 {
		return q.overloaded(fmt.Sprintf("%d sandboxes of this key are waiting to start, which is the limit per key", count), count/4)
	}
	place := q.lines.nextPosition(key)
	if q.running < q.limit.now {
		return nil
	}
	wait, known := q.expected(place)
	if !known {
		return nil
	}
	if wait > q.maxWait {
		return q.overloaded(fmt.Sprintf("the sandbox would start in about %s, which is more than the longest wait of %s", rounded(wait), q.maxWait), q.excess(wait-q.maxWait))
	}
	if deadline, ok := ctx.Deadline(); ok {
		if left := deadline.Sub(q.now()); wait > left {
			return q.overloaded(fmt.Sprintf("the sandbox would start in about %s, but the request ends in %s", rounded(wait), rounded(left)), q.excess(wait-left))
		}
	}
	return nil
}

// overloaded returns the error for a refused request. It includes the time after which a retry may
// succeed: when the excess callers in the queue have been served.
func (q *Queue) overloaded(text string, ahead int) error {
	after, known := q.expected(max(ahead, 1))
	if !known || after < time.Second {
		after = time.Second
	}
	after = after.Truncate(time.Second)
	return fault.New(fault.Exhausted, CodeOverloaded, text).
		WithHint(fmt.Sprintf("try again in %s, or raise max_queued or max_queue_wait", after)).WithRetryAfter(after)
}

// excess returns the number of starts that take as long as the given time. q.mu must be held.
func (q *Queue) excess(d time.Duration) int {
	if q.service.value <= 0 {
		return 1
	}
	return int(d*time.Duration(q.limit.now)/q.service.value) + 1
}

func rounded(d time.Duration) time.Duration { return max(d, 0).Round(100 * time.Millisecond) }

// leave takes a caller out of the queue, and reports whether it was still in it.
func (q *Queue) leave(e *entry) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.lines.remove(e) {
		return false
	}
	q.totals.Left++
	return true
}

// dispatch admits the next callers while there are free places. q.mu must be held. Running
// background work does not delay a caller: it cannot be interrupted, and may take seconds.
func (q *Queue) dispatch() {
	for q.running < q.limit.now {
		e := q.lines.next()
		if e == nil {
			return
		}
		q.running++
		q.totals.Admitted++
		close(e.admitted)
	}
}

// setPreceding records how many starts of other processes precede that of an admitted caller. A
// negative number ends the wait.
func (q *Queue) setPreceding(e *entry, ahead int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ahead < 0 {
		delete(q.preceding, e)
		return
	}
	q.preceding[e] = ahead
}

// A start that takes timeoutFactor times as long as usual, and at least
// minTimeout, releases its slot and continues without one.
const (
	timeoutFactor  = 10
	minTimeout     = 10 * time.Second
	defaultTimeout = time.Minute
)

// placeTimeout returns how long a start keeps its place. Without this limit, an attacker could
// resume snapshots whose guest hangs, and so occupy all places again and again.
func (q *Queue) placeTimeout() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.service.value == 0 {
		return defaultTimeout
	}
	return max(timeoutFactor*q.service.value, minTimeout)
}

// recordStart records the duration of a successful start.
func (q *Queue) recordStart(started time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	q.totals.Completed++
	q.service.add(now.Sub(started))
	if q.limit.completed(now, q.lines.count > 0) {
		q.log.Debug("starts at once", "limit", q.limit.now, "waiting", q.lines.count, "service", q.service.value)
	}
}

// pass ends the turn of a caller, or of background work.
func (q *Queue) pass(caller bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !caller {
		q.background--
		return
	}
	q.running--
	q.dispatch()
}
