package admission

import "time"

const (
	// minWindow is the minimum number of starts that are counted before the limit changes, and
	// startsPerPlace is the minimum for each place. With fewer starts, the measured rate would be
	// mostly noise.
	minWindow      = 12
	startsPerPlace = 4
	// minDifference is the smallest relative change of the rate that counts.
	minDifference = 0.05
)

// limit is how many starts may run at once. It begins with the number of processors and searches
// for the number with the highest rate. After each window of starts in which callers were always
// waiting, it takes another step. It keeps its direction if the rate has risen and reverses if the
// rate has fallen. If the step made no difference it goes down, because each start is then faster.
type limit struct {
	now, lowest, highest int

	direction int     // of the next step: 1 or -1
	rate      float64 // starts per second in the previous window, or 0
	started   time.Time
	finished  int
}

// newLimit returns a limit that is fixed if atOnce is positive.
func newLimit(atOnce, processors int) limit {
	if atOnce > 0 {
		return limit{now: atOnce, lowest: atOnce, highest: atOnce}
	}
	n := max(1, processors)
	return limit{now: n, lowest: n, highest: MaxAtOnce(n), direction: 1}
}

// completed counts a successful start, and reports whether the limit has changed. waiting reports
// whether callers wait: without a queue, the rate of starts is the rate of requests and says
// nothing about the machine.
func (l *limit) completed(now time.Time, waiting bool) bool {
	if l.lowest == l.highest {
		return false
	}
	if !waiting {
		l.started, l.finished, l.rate = time.Time{}, 0, 0
		return false
	}
	if l.started.IsZero() {
		l.started, l.finished = now, 0
		return false
	}
	l.finished++
	elapsed := now.Sub(l.started)
	if l.finished < max(minWindow, startsPerPlace*l.now) || elapsed <= 0 {
		return false
	}
	rate := float64(l.finished) / elapsed.Seconds()
	switch {
	case l.rate == 0:
		l.direction = 1
	case rate < l.rate*(1-minDifference):
		l.direction = -l.direction
	case rate < l.rate*(1+minDifference):
		l.direction = -1
	}
	before := l.now
	l.now = min(max(l.now+l.direction, l.lowest), l.highest)
	if l.now == before {
		// The limit is at an end of its range: the next step leads away from it.
		l.direction = -l.direction
	}
	l.rate, l.started, l.finished = rate, now, 0
	return l.now != before
}

// average is a moving average of durations in which the latest counts a fifth.
type average struct{ value time.Duration }

func (a *average) add(d time.Duration) {
	if a.value == 0 {
		a.value = d
		return
	}
	a.value += (d - a.value) / 5
}
