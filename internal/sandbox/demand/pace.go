package demand

import "time"

const (
	// quiet is how long no sandbox must have been created before a warm one or a template snapshot
	// is made in advance. Making one takes processor time from the first commands of the last
	// caller. If the next caller is expected within soon, the shorter Hasty applies.
	quiet = 150 * time.Millisecond
	// Hasty is the shortest time without a creation before a warm sandbox is made.
	Hasty = 20 * time.Millisecond
	soon  = time.Second
)

// Pace determines whether callers leave time to make a warm sandbox. The zero value is ready for
// use. It is not safe for concurrent use.
type Pace struct {
	last          time.Time // when a creation was last in progress
	requested     time.Time // when a creation was last requested
	closeTogether bool      // whether the last request came soon after the one before
}

// Add records that a caller requests a sandbox.
func (p *Pace) Add(at time.Time) {
	p.last, p.requested, p.closeTogether = at, at, at.Sub(p.requested) < soon
}

// End records that a creation or a change of state has ended.
func (p *Pace) End(at time.Time) { p.last = at }

// Left returns how much longer there must be no creation, if positive.
func (p *Pace) Left(at time.Time) time.Duration {
	pause := quiet
	if p.closeTogether {
		pause = Hasty
	}
	return pause - at.Sub(p.last)
}

const (
	// FailPause is the pause after a failure. It doubles with each further failure, up to
	// failPauseMax.
	FailPause    = 5 * time.Second
	failPauseMax = 5 * time.Minute
)

// Backoff is the pause after failures. The zero value has none. It is not safe for
// concurrent use.
type Backoff struct {
	pause time.Duration
	until time.Time
}

// Fail records a failure and returns the pause that begins.
func (b *Backoff) Fail(at time.Time) time.Duration {
	b.pause = min(max(2*b.pause, FailPause), failPauseMax)
	b.until = at.Add(b.pause)
	return b.pause
}

// Succeed records a success and resets the pause after the next failure to the shortest. A pause
// that has begun continues.
func (b *Backoff) Succeed() { b.pause = 0 }

// Left returns how much of the pause is left, if positive.
func (b *Backoff) Left(at time.Time) time.Duration { return b.until.Sub(at) }
