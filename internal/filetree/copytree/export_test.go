package copytree

import "time"

// SetStaleAfter changes how old what a killed process has left must be.
func SetStaleAfter(d time.Duration) (restore func()) {
	before := staleAfter
	staleAfter = d
	return func() { staleAfter = before }
}
