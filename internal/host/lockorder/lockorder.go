// Package lockorder owns mutexes with a rank. With the race detector, a goroutine panics if it
// takes one while it holds another of the same or a higher rank. So any test that takes the locks
// finds a deadlock, not only one in which two goroutines meet. Without the detector they are the
// mutexes of package sync.
package lockorder

// Rank is the position of a lock in the order. The lock to take first has the lowest rank.
type Rank interface {
	// Rank returns the position, and a name for messages.
	Rank() (place int, name string)
}
