//go:build race

package lockorder

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
)

// Checked reports whether this build checks the order of locks.
const Checked = true

// heldLock is a lock that a goroutine holds.
type heldLock struct {
	place int
	name  string
}

var (
	mu sync.Mutex
	// locksOf lists the locks that each goroutine holds, in the order in which it took them.
	locksOf = make(map[uint64][]heldLock)
)

// goroutineID returns the number of the calling goroutine, which the runtime shows only in a stack
// trace.
func goroutineID() uint64 {
	var buf [64]byte
	text := buf[:runtime.Stack(buf[:], false)]
	text = bytes.TrimPrefix(text, []byte("goroutine "))
	number, _, _ := bytes.Cut(text, []byte(" "))
	id, err := strconv.ParseUint(string(number), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("lockorder: a stack trace begins with %q", text))
	}
	return id
}

// enter checks and records that this goroutine takes a lock, before it waits for it.
func enter[R Rank]() uint64 {
	var r R
	place, name := r.Rank()
	id := goroutineID()
	mu.Lock()
	defer mu.Unlock()
	for _, h := range locksOf[id] {
		if h.place >= place {
			panic(fmt.Sprintf("lockorder: %s is taken while %s is held", name, h.name))
		}
	}
	locksOf[id] = append(locksOf[id], heldLock{place, name})
	return id
}

// leave records that a goroutine has released a lock.
func leave[R Rank](id uint64) {
	var r R
	place, name := r.Rank()
	mu.Lock()
	defer mu.Unlock()
	i := slices.Index(locksOf[id], heldLock{place, name})
	if i < 0 {
		panic(fmt.Sprintf("lockorder: %s is released by a goroutine that does not hold it", name))
	}
	if locksOf[id] = slices.Delete(locksOf[id], i, i+1); len(locksOf[id]) == 0 {
		delete(locksOf, id)
	}
}

// Mutex is a sync.Mutex with a rank.
type Mutex[R Rank] struct{ inner sync.Mutex }

// Lock checks the order and locks.
func (m *Mutex[R]) Lock() { enter[R](); m.inner.Lock() }

// Unlock unlocks. The goroutine that locked must call it.
func (m *Mutex[R]) Unlock() { m.inner.Unlock(); leave[R](goroutineID()) }

// RWMutex is a sync.RWMutex with a rank.
type RWMutex[R Rank] struct{ inner sync.RWMutex }

// Lock checks the order and locks for writing.
func (m *RWMutex[R]) Lock() { enter[R](); m.inner.Lock() }

// Unlock unlocks. The goroutine that locked must call it.
func (m *RWMutex[R]) Unlock() { m.inner.Unlock(); leave[R](goroutineID()) }

// RLock checks the order and locks for reading.
func (m *RWMutex[R]) RLock() { enter[R](); m.inner.RLock() }

// RUnlock unlocks. The goroutine that locked must call it.
func (m *RWMutex[R]) RUnlock() { m.inner.RUnlock(); leave[R](goroutineID()) }

// Enter records that the goroutine takes a lock of another kind with a rank. The returned function
// records the release, and another goroutine may call it.
func Enter[R Rank]() (release func()) {
	id := enter[R]()
	return sync.OnceFunc(func() { leave[R](id) })
}
