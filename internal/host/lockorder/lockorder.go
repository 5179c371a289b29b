// Package lockorder owns mutexes with a rank. With the race detector, a goroutine that
// takes one while it holds another of the same or a lower rank panics, so that a deadlock
// is found by any test that takes the locks, and not only by one in which two goroutines
// meet. Without the detector they are those of package sync.
package lockorder

// Rank is the place of a lock in the order. The first lock to take has the lowest rank.
type Rank interface {
	// Rank returns the place and a name for people.
	Rank() (place int, name string)
}
