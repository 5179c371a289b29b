package server

import "time"

// DrainFor sets how long requests may take to finish, until the test ends.
func DrainFor(d time.Duration) (back func()) {
	before := drainTimeout
	drainTimeout = d
	return func() { drainTimeout = before }
}
