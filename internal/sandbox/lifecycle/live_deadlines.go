package lifecycle

import (
	"time"

	"github.com/crannog/crannog/internal/sandbox"
)

// nextDue returns the earliest deadline of all sandboxes that are not ending, or zero.
func (l *liveSandboxes) nextDue() time.Time {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var next time.Time
	for _, b := range l.all {
		end := b.nextDeadline()
		if b.ending || end.IsZero() {
			continue
		}
		if next.IsZero() || end.Before(next) {
			next = end
		}
	}
	return next
}

// takeDue returns the sandboxes whose deadline has come. It does not return a sandbox again until
// notEnding is called for it.
func (l *liveSandboxes) takeDue(now time.Time) (pause, end []*liveSandbox) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.all {
		if at := b.nextDeadline(); b.ending || at.IsZero() || at.After(now) {
			continue
		}
		b.ending = true
		if b.row.OnEnd.Pause {
			pause = append(pause, b)
		} else {
			end = append(end, b)
		}
	}
	return pause, end
}

// notEnding lets takeDue return a sandbox again.
func (l *liveSandboxes) notEnding(b *liveSandbox) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.ending = false
}

// setEnd adopts a new end, without the delay of failed pauses.
func (l *liveSandboxes) setEnd(r sandbox.Row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.all[r.ID]; b != nil {
		b.row.EndAt, b.notBefore = r.EndAt, time.Time{}
	}
	delete(l.delays, r.ID)
}

// refresh adopts the end in a row that another process may have changed, and reports whether the
// row has another instance than the watched one.
func (l *liveSandboxes) refresh(r sandbox.Row) (another bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.all[r.ID]
	if b == nil {
		return false
	}
	b.row.EndAt, b.ending = r.EndAt, false
	return r.State == sandbox.Running && b.row.Run != r.Run
}

// setEndUnsent records whether the guest of a sandbox must still be sent its end.
func (l *liveSandboxes) setEndUnsent(id string, unsent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.all[id]; b != nil {
		b.endUnsent = unsent
	}
}

// unsentEnd returns the row of a sandbox, and reports whether its guest must still be sent its end.
func (l *liveSandboxes) unsentEnd(id string) (sandbox.Row, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if b := l.all[id]; b != nil {
		return b.row, b.endUnsent
	}
	return sandbox.Row{}, false
}

// minDelay and maxDelay are the shortest and the longest delay of a deadline after a failed
// pause.
const (
	minDelay = time.Second
	maxDelay = time.Minute
)

// delay sets the time of the next attempt if a pause fails, later each time. It is called before
// the pause, because a sandbox that continues after a failed pause is watched anew, and would
// otherwise be paused again at once.
func (l *liveSandboxes) delay(id string) delay {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.delays[id]
	d = delay{tries: d.tries + 1, until: time.Now().Add(min(minDelay<<min(d.tries, 16), maxDelay))}
	l.delays[id] = d
	if b := l.all[id]; b != nil {
		b.notBefore = d.until
	}
	return d
}

// clearDelay forgets the failed pauses of a sandbox.
func (l *liveSandboxes) clearDelay(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.delays, id)
}
