package server

import "time"

// DrainFor sets how long requests may finish, until it is taken back.
func DrainFor(d time.Duration) (back func()) {
	before := drainTimeout
	drainTimeout = d
	return func() { drainTimeout = before }
}
