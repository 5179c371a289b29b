package attachment

import (
	"time"

	"golang.org/x/time/rate"
)

// meters bound what a sandbox makes us do per second.
type meters struct {
	connects *rate.Limiter // attempts to connect
	queries  *rate.Limiter // names
	refusals *rate.Limiter // answers to UDP and to segments that go nowhere
	reports  *rate.Limiter // calls of Handler.Dropped
	resolves *rate.Limiter // answers to ARP
	junk     *rate.Limiter // packets that go nowhere, before reading rests
}

func newMeters(o Options) meters {
	return meters{
		connects: newMeter(o.ConnectsPerSecond), queries: newMeter(o.NamesPerSecond),
		refusals: newMeter(100), resolves: newMeter(20), reports: newMeter(20), junk: newMeter(5000),
	}
}

// newMeter returns a limiter that admits a number of events per second, and
// twice that number at once after a quiet time.
func newMeter(perSecond int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), 2*perSecond)
}

// rest returns after ten milliseconds, or when stop is closed. A reader that
// rests whenever the meter of junk is empty costs no processor under a flood.
func rest(stop <-chan struct{}) {
	timer := time.NewTimer(10 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-stop:
	}
}
