package attachment

import (
	"time"

	"golang.org/x/time/rate"
)

// meters limit how much work per second a sandbox can cause.
type meters struct {
	connects *rate.Limiter // connection attempts
	queries  *rate.Limiter // DNS queries
	refusals *rate.Limiter // answers to UDP and to stray segments
	reports  *rate.Limiter // calls of Handler.Dropped
	resolves *rate.Limiter // ARP replies
	junk     *rate.Limiter // dropped packets, before reading pauses
}

func newMeters(o Options) meters {
	return meters{
		connects: newMeter(o.ConnectsPerSecond), queries: newMeter(o.NamesPerSecond),
		refusals: newMeter(100), resolves: newMeter(20), reports: newMeter(20), junk: newMeter(5000),
	}
}

// newMeter returns a limiter that admits a number of events per second, with a burst of twice that
// number.
func newMeter(perSecond int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), 2*perSecond)
}

// pauseReading returns after ten milliseconds, or when stop is closed. Readers call it when the
// meter of dropped packets is empty, so that a flood costs no processor time.
func pauseReading(stop <-chan struct{}) {
	timer := time.NewTimer(10 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-stop:
	}
}
