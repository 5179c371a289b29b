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

// minAllocated is how many bytes must have been allocated since the last release to make another
// release worthwhile.
const minAllocated = 1 << 20

// ReleaseWhenIdle starts to watch this process, and gives free memory back to the host whenever no
// garbage collection has run for the given time. Watching an idle process costs nothing, because
// only a collection wakes the watch.
func ReleaseWhenIdle(after time.Duration) {
	w := &watch{after: after, free: debug.FreeOSMemory}
	w.timer = time.AfterFunc(after, w.release)
	w.awaitCollection()
}

// watch resets its timer after each collection. When the timer fires, the process is idle.
type watch struct {
	after time.Duration
	timer *time.Timer
	free  func()
	// releasedAt is how many bytes had been allocated in total when memory was last given back.
	releasedAt atomic.Uint64
}

// garbage is an object that the next collection frees, which tells the watch about the collection.
// The pointer keeps it out of the blocks that small objects share.
type garbage struct{ _ *garbage }

// awaitCollection makes the next collection call collected.
func (w *watch) awaitCollection() {
	runtime.AddCleanup(new(garbage), (*watch).collected, w)
}

func (w *watch) collected() {
	w.timer.Reset(w.after)
	w.awaitCollection()
}

// release gives free memory back to the host. debug.FreeOSMemory collects garbage, which starts the
// timer once more; that call then finds too few new allocations and does nothing.
func (w *watch) release() {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	if stats.TotalAlloc-w.releasedAt.Swap(stats.TotalAlloc) < minAllocated {
		return
	}
	w.free()
}
