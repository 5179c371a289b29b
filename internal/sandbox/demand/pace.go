package demand

import "time"

const (
	// quiet is how long no sandbox must have been created before a warm one is made
	// in advance or rehearses. Either would take the processors from the first
	// commands of the last caller. Where callers follow each other within soon, the
	// next caller matters more, and the shorter Hasty applies.
	quiet = 150 * time.Millisecond
	// Hasty is the shortest time without a creation before a warm sandbox is made.
	Hasty = 20 * time.Millisecond
	soon  = time.Second
)

// Pace determines whether callers leave time to make a warm sandbox. The zero value is ready. It
// is not safe for concurrent use.
type Pace struct {
	last    time.Time // when a creation was last under way
	asked   time.Time // when one was last asked for
	hurried bool      // that one was asked for soon after the one before
}

// Ask notes that a caller asks for a sandbox.
func (p *Pace) Ask(at time.Time) {
	p.last, p.asked, p.hurried = at, at, at.Sub(p.asked) < soon
}

// End notes that a creation or a change of state has ended.
func (p *Pace) End(at time.Time) { p.last = at }

// Left returns how much longer there must be no creation, if positive.
func (p *Pace) Left(at time.Time) time.Duration {
	pause := quiet
	if p.hurried {
		pause = Hasty
	}
	return pause - at.Sub(p.last)
}

const (
	// FailPause is how long nothing is made after a failure. It doubles with each
	// further failure, up to failPauseMax.
	FailPause    = 5 * time.Second
	failPauseMax = 5 * time.Minute
)

// Backoff is the pause after failures. The zero value has none. It is not safe for
// concurrent use.
type Backoff struct {
	pause time.Duration
	until time.Time
}

// Fail notes a failure and returns the pause that begins.
func (b *Backoff) Fail(at time.Time) time.Duration {
	b.pause = min(max(2*b.pause, FailPause), failPauseMax)
	b.until = at.Add(b.pause)
	return b.pause
}

// Succeed notes a success: the pause after the next failure is the shortest again. One
// that has begun lasts.
func (b *Backoff) Succeed() { b.pause = 0 }

// Left returns how much of the pause is left, if positive.
func (b *Backoff) Left(at time.Time) time.Duration { return b.until.Sub(at) }
