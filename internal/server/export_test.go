package server

import "time"

// SetDrainTimeout sets how long requests may take to finish after a shutdown was requested. It
// returns a function that restores the old value.
func SetDrainTimeout(d time.Duration) (restore func()) {
	before := drainTimeout
	drainTimeout = d
	return func() { drainTimeout = before }
}
