package idle

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// sink keeps what is allocated from being proven unused.
var sink [][]byte

func TestGivesBackOnceAfterWork(t *testing.T) {
	// Only the collections of this test count.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	freed := make(chan struct{}, 10)
	w := &watch{free: func() { freed <- struct{}{} }}
	armed := make(chan struct{}, 10)
	w.timer = time.AfterFunc(time.Hour, func() { armed <- struct{}{} })
	w.next()

	for range 64 {
		sink = append(sink, make([]byte, 64<<10))
	}
	runtime.GC()
	<-armed
	w.quiet()
	if len(freed) != 1 {
		t.Fatalf("gave back %d times after 4 MB", len(freed))
	}
	w.quiet()
	if len(freed) != 1 {
		t.Error("gave back again, after nothing")
	}
	// It is woken by every later round too.
	runtime.GC()
	<-armed
	sink = nil
}

func TestMemoryGoesToTheHost(t *testing.T) {
	const size = 64 << 20
	block := make([]byte, size)
	for i := 0; i < size; i += 4096 {
		block[i] = 1
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	runtime.KeepAlive(block)
	block = nil
	GiveBack(0)
	for deadline := time.Now().Add(20 * time.Second); ; {
		runtime.ReadMemStats(&after)
		if after.HeapReleased >= before.HeapReleased+size/2 { // the rest of the test needs some too
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("released %d before, %d after", before.HeapReleased, after.HeapReleased)
		}
		runtime.Gosched()
	}
}
