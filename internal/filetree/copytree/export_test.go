package copytree

import "time"

// SetStaleAfter changes how old leftovers of a killed process must be.
func SetStaleAfter(d time.Duration) (restore func()) {
	before := staleAfter
	staleAfter = d
	return func() { staleAfter = before }
}
