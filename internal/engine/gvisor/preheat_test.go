package gvisor

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/crannog/crannog/internal/hosttest"
)

// free is what Go has of the host's memory and nothing lies in.
func free() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapIdle - m.HeapReleased
}

// emptied gives back what nothing lies in, and returns what of it is left. What other
// tests have left may be freed only now, by finalizers, so it is tried again.
func emptied(t *testing.T) (left uint64) {
	t.Helper()
	hosttest.EventuallyNoError(t, func() error {
		debug.FreeOSMemory()
		if left = free(); left > heated/4 {
			return fmt.Errorf("%d bytes are ready already", left)
		}
		return nil
	})
	return left
}

// What is touched stays with the process, for whoever allocates next.
func TestTouchedMemoryIsReady(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	before := emptied(t)
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
	before := emptied(t)
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
