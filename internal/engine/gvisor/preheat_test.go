package gvisor

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

// idleMemory returns how much memory Go holds and does not use.
func idleMemory() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapIdle - m.HeapReleased
}

// inOwnProcess runs a test in a separate process, and reports whether this is that process. Memory
// that other tests have left in the heap is not all returned to the host.
func inOwnProcess(t *testing.T) bool {
	t.Helper()
	const variable = "CRANNOG_TEST_OWN_PROCESS"
	if os.Getenv(variable) == t.Name() {
		return true
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// Touched memory stays allocated, for the next allocation.
func TestPopulatedMemoryStaysAllocated(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	debug.FreeOSMemory()
	before := idleMemory()
	if before > preheatBytes/2 {
		t.Fatalf("control: %d bytes are ready already", before)
	}
	populate(preheatBytes)
	// Memory that was prepared before is used first, and counts.
	if got := idleMemory(); got < preheatBytes*9/10 {
		t.Errorf("%d bytes are ready, %d were before", got, before)
	}
}

// A kernel with a running guest is not changed.
func TestPreheatSkipsRunningKernel(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer occupied.Store(occupied.Swap(true))
	debug.FreeOSMemory()
	before := idleMemory()
	preheat(programPages())
	if got := idleMemory(); got > preheatBytes/2 {
		t.Errorf("%d bytes are ready, %d were before", got, before)
	}
	occupied.Store(false)
	preheat(programPages())
	if got := idleMemory(); got < preheatBytes*9/10 {
		t.Errorf("%d bytes are ready in a prestarted kernel, %d were before", got, before)
	}
}

// Only a prestarted kernel is preheated; its bundle's name shows that it is one.
func TestIsPrestartedByBundle(t *testing.T) {
	for bundle, want := range map[string]bool{
		"/state/run/spare-w0123.1-2": true, "/state/run/spare-k0123.1-2": false, "/state/run/w0123": false, "/spare-w/run/k0123": false,
	} {
		if got := isPrestarted([]string{"runsc-sandbox", "--root=/x", "boot", "--bundle=" + bundle, "--pidns=true", "id"}); got != want {
			t.Errorf("isPrestarted with the bundle %s is %t, want %t", bundle, got, want)
		}
	}
}
