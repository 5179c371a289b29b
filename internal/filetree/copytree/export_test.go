package copytree

import "time"

// SetStaleAfter changes the minimum age of stages that are removed.
func SetStaleAfter(d time.Duration) (restore func()) {
	before := staleAfter
	staleAfter = d
	return func() { staleAfter = before }
}
