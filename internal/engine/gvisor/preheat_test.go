package gvisor

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// free is what Go has of the host's memory and nothing lies in.
func free() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapIdle - m.HeapReleased
}

// What is touched stays with the process, for whoever allocates next.
func TestTouchedMemoryIsReady(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	debug.FreeOSMemory()
	before := free()
	if before > heated/2 {
		t.Fatalf("control: %d bytes are ready already", before)
	}
	touch(heated)
	// What was ready before is used first, and is a part of it.
	if got := free(); got < heated*9/10 {
		t.Errorf("%d bytes are ready, %d were before", got, before)
	}
}

// A kernel in which a guest runs is left alone.
func TestOnlyASpareKernelIsPreheated(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer occupied.Store(occupied.Swap(true))
	debug.FreeOSMemory()
	before := free()
	preheat(programPages())
	if got := free(); got > heated/2 {
		t.Errorf("%d bytes are ready, %d were before", got, before)
	}
	occupied.Store(false)
	preheat(programPages())
	if got := free(); got < heated*9/10 {
		t.Errorf("%d bytes are ready of a spare one, %d were before", got, before)
	}
}

// Only who waits has the time.
func TestWaitingKernelsAreTold(t *testing.T) {
	for bundle, want := range map[string]bool{
		"/state/run/spare-w0123.1-2": true, "/state/run/spare-k0123.1-2": false, "/state/run/w0123": false, "/spare-w/run/k0123": false,
	} {
		if got := waits([]string{"runsc-sandbox", "--root=/x", "boot", "--bundle=" + bundle, "--pidns=true", "id"}); got != want {
			t.Errorf("%s: %t", bundle, got)
		}
	}
}
