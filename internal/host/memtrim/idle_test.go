package memtrim

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// sink keeps the compiler from removing unused allocations.
var sink [][]byte

func TestReleaseOnlyAfterNewAllocations(t *testing.T) {
	// Automatic collections are off, so that only runtime.GC collects.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	freed := make(chan struct{}, 10)
	w := &watch{free: func() { freed <- struct{}{} }}
	fired := make(chan struct{}, 10)
	w.timer = time.AfterFunc(time.Hour, func() { fired <- struct{}{} })
	w.awaitCollection()

	for range 64 {
		sink = append(sink, make([]byte, 64<<10))
	}
	collectUntil(t, fired)
	w.release()
	if len(freed) != 1 {
		t.Fatalf("memory was released %d times after allocating 4 MB, want once", len(freed))
	}
	w.release()
	if len(freed) != 1 {
		t.Error("memory was released again without new allocations")
	}
	// A later collection resets the timer too.
	collectUntil(t, fired)
	sink = nil
}

// collectUntil collects garbage until the watch's timer fires. One collection is not always enough:
// the timer is reset before the next garbage object is allocated, so a collection may find none.
func collectUntil(t *testing.T, fired <-chan struct{}) {
	t.Helper()
	for deadline := hosttest.Deadline(); ; {
		runtime.GC()
		select {
		case <-fired:
			return
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("no collection woke the watch")
		}
	}
}

func TestReleaseWhenIdleReturnsMemory(t *testing.T) {
	const size = 64 << 20
	before := useMemory(size)
	ReleaseWhenIdle(0)
	hosttest.EventuallyNoError(t, func() error {
		var after runtime.MemStats
		runtime.ReadMemStats(&after)
		if after.HeapReleased < before.HeapReleased+size/2 { // other allocations of the test may keep some
			return fmt.Errorf("%d bytes were released before, %d after; want at least half of the block more", before.HeapReleased, after.HeapReleased)
		}
		return nil
	})
}

// useMemory allocates size bytes and reads the memory statistics while they are in use. It is not
// inlined, so that nothing in the caller's frame still points to the memory.
//
//go:noinline
func useMemory(size int) (used runtime.MemStats) {
	block := make([]byte, size)
	for i := 0; i < size; i += 4096 {
		block[i] = 1
	}
	runtime.ReadMemStats(&used)
	runtime.KeepAlive(block)
	return used
}
