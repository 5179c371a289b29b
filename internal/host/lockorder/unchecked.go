//go:build !race

package lockorder

import "sync"

// Checked reports whether the order is checked.
const Checked = false

// Mutex is a sync.Mutex with a rank.
type Mutex[R Rank] struct{ sync.Mutex }

// RWMutex is a sync.RWMutex with a rank.
type RWMutex[R Rank] struct{ sync.RWMutex }

// Enter records that the goroutine takes a lock of another kind with a rank. The returned function
// records the release, and another goroutine may call it.
func Enter[R Rank]() (leave func()) { return func() {} }
