// Package memtrim owns giving memory back to the host when a process becomes idle. Go keeps unused
// memory until its next collection, and an idle process has no reason to collect. Without this
// package, a sandbox would keep the memory of its busiest moment for its whole life.
package memtrim

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// After is how long a process must go without a collection before it counts as idle. It is long
// enough that a program that computes for a while before it answers is not slowed down.
const After = 10 * time.Second

// worth is the minimum number of bytes that must have been allocated since the last release to make
// another one worthwhile.
const worth = 1 << 20

// ReleaseWhenIdle starts to watch this process. Watching an idle process costs nothing: only the
// collector wakes it.
func ReleaseWhenIdle(after time.Duration) {
	w := &watch{after: after, free: debug.FreeOSMemory}
	w.timer = time.AfterFunc(after, w.quiet)
	w.next()
}

// watch runs after each collection, and again when no other collection has followed for a while.
type watch struct {
	after time.Duration
	timer *time.Timer
	free  func()
	at    atomic.Uint64 // the total allocated when memory was last given back
}

// bait is an object that each collection finds to be garbage. The pointer keeps it out of the
// blocks that small objects share.
type bait struct{ _ *bait }

func (w *watch) next() {
	runtime.AddCleanup(new(bait), (*watch).collected, w)
}

func (w *watch) collected() {
	w.timer.Reset(w.after)
	w.next()
}

// quiet gives back the free memory. Its own collection starts the timer once more, which then finds
// too little to release.
func (w *watch) quiet() {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	if stats.TotalAlloc-w.at.Swap(stats.TotalAlloc) < worth {
		return
	}
	w.free()
}
