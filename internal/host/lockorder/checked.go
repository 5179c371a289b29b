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

// Checked reports whether the order is checked.
const Checked = true

// held lists the locks of one goroutine in the order in which it took them.
type held struct {
	place int
	name  string
}

var (
	mu  sync.Mutex
	all = make(map[uint64][]held)
)

// goroutine returns the number of the calling goroutine, which the runtime shows only in a stack
// trace.
func goroutine() uint64 {
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
	id := goroutine()
	mu.Lock()
	defer mu.Unlock()
	for _, h := range all[id] {
		if h.place >= place {
			panic(fmt.Sprintf("lockorder: %s is taken while %s is held", name, h.name))
		}
	}
	all[id] = append(all[id], held{place, name})
	return id
}

// leave records that a goroutine has released a lock.
func leave[R Rank](id uint64) {
	var r R
	place, name := r.Rank()
	mu.Lock()
	defer mu.Unlock()
	i := slices.Index(all[id], held{place, name})
	if i < 0 {
		panic(fmt.Sprintf("lockorder: %s is released by a goroutine that does not hold it", name))
	}
	if all[id] = slices.Delete(all[id], i, i+1); len(all[id]) == 0 {
		delete(all, id)
	}
}

// Mutex is a sync.Mutex with a rank.
type Mutex[R Rank] struct{ inner sync.Mutex }

// Lock checks the order and locks.
func (m *Mutex[R]) Lock() { enter[R](); m.inner.Lock() }

// Unlock unlocks. The goroutine that locked must call it.
func (m *Mutex[R]) Unlock() { m.inner.Unlock(); leave[R](goroutine()) }

// RWMutex is a sync.RWMutex with a rank.
type RWMutex[R Rank] struct{ inner sync.RWMutex }

// Lock checks the order and locks for writing.
func (m *RWMutex[R]) Lock() { enter[R](); m.inner.Lock() }

// Unlock unlocks. The goroutine that locked must call it.
func (m *RWMutex[R]) Unlock() { m.inner.Unlock(); leave[R](goroutine()) }

// RLock checks the order and locks for reading.
func (m *RWMutex[R]) RLock() { enter[R](); m.inner.RLock() }

// RUnlock unlocks, in the goroutine that has locked.
func (m *RWMutex[R]) RUnlock() { m.inner.RUnlock(); leave[R](goroutine()) }

// Enter records that the goroutine takes a lock of another kind with a rank. The returned function
// records the release, and another goroutine may call it.
func Enter[R Rank]() (left func()) {
	id := enter[R]()
	return sync.OnceFunc(func() { leave[R](id) })
}
