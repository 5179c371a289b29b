package gvisor

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

// free returns how much of the host's memory Go has allocated and does not use.
func free() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapIdle - m.HeapReleased
}

// inItsOwn runs a test in a separate process, and reports whether this is that process. Memory that
// other tests have left in the heap is not all returned to the host.
func inItsOwn(t *testing.T) bool {
	t.Helper()
	const mark = "CRANNOG_TEST_IN_ITS_OWN"
	if os.Getenv(mark) == t.Name() {
		return true
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// Touched memory stays allocated, for the next allocation.
func TestTouchedMemoryIsReady(t *testing.T) {
	if !inItsOwn(t) {
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	debug.FreeOSMemory()
	before := free()
	if before > heated/2 {
		t.Fatalf("control: %d bytes are ready already", before)
	}
	populate(heated)
	// Memory that was prepared before is used first, and counts.
	if got := free(); got < heated*9/10 {
		t.Errorf("%d bytes are ready, %d were before", got, before)
	}
}

// A kernel with a running guest is not changed.
func TestOnlyASpareKernelIsPreheated(t *testing.T) {
	if !inItsOwn(t) {
		return
	}
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

// Only a prestarted kernel has the time for this.
func TestWaitingKernelsAreTold(t *testing.T) {
	for bundle, want := range map[string]bool{
		"/state/run/spare-w0123.1-2": true, "/state/run/spare-k0123.1-2": false, "/state/run/w0123": false, "/spare-w/run/k0123": false,
	} {
		if got := waits([]string{"runsc-sandbox", "--root=/x", "boot", "--bundle=" + bundle, "--pidns=true", "id"}); got != want {
			t.Errorf("%s: %t", bundle, got)
		}
	}
}
