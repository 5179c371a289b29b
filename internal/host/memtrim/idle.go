// Package memtrim owns giving memory back to the host when a process has been
// busy and is not any more. Go keeps what it has once needed until it collects
// garbage again, and an idle process has no reason to: what a sandbox took for
// one busy moment would be its own for its whole life.
package memtrim

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// After is how long a process must not have collected garbage before it counts
// as idle. A program that computes for a while and answers then should not pay
// in between.
const After = 10 * time.Second

// worth is how much must have been allocated since the last time for another
// one to be worth it.
const worth = 1 << 20

// GiveBack watches this process from now on. While nothing happens it costs
// nothing: it is woken by the collector alone.
func GiveBack(after time.Duration) {
	w := &watch{after: after, free: debug.FreeOSMemory}
	w.timer = time.AfterFunc(after, w.quiet)
	w.next()
}

// watch is woken twice: by each collection, and when none has followed for a
// while.
type watch struct {
	after time.Duration
	timer *time.Timer
	free  func()
	at    atomic.Uint64 // what was allocated in all when memory was last given back
}

// bait is what the collector finds to be garbage in each of its rounds. The
// pointer keeps it out of the blocks in which small things share their end.
type bait struct{ _ *bait }

func (w *watch) next() {
	runtime.AddCleanup(new(bait), (*watch).collected, w)
}

func (w *watch) collected() {
	w.timer.Reset(w.after)
	w.next()
}

// quiet gives back what there is. The collection that this takes starts the
// timer once more, and then there is nothing worth it.
func (w *watch) quiet() {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	if stats.TotalAlloc-w.at.Swap(stats.TotalAlloc) < worth {
		return
	}
	w.free()
}
