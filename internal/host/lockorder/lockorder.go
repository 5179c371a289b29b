// Package lockorder owns mutexes with a rank. With the race detector, a goroutine panics if it
// takes a mutex while it holds another of the same or a higher rank. Any test that takes the
// mutexes thus finds a possible deadlock, even if no two goroutines ever wait for each other.
// Without the detector they are the mutexes of package sync.
package lockorder

// Rank is the position of a lock in the order. The lock to take first has the lowest rank.
type Rank interface {
	// Rank returns the position, and the lock's name for messages.
	Rank() (place int, name string)
}
