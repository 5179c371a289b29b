package prefault_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/host/prefault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

const page = 4 << 10

// childVariable is set in the environment of the process that runs the test.
const childVariable = "PREFAULT_FRESH"

// sink keeps the compiler from removing unused allocations.
var sink [][]byte

// TestHeapAvoidsPageFaults allocates the populated memory and counts the page faults.
func TestHeapAvoidsPageFaults(t *testing.T) {
	hosttest.Need(t, hosttest.Requirement{Name: fmt.Sprintf("pages of %d bytes", page), Has: func() bool { return os.Getpagesize() == page }})
	if os.Getenv(childVariable) == "" {
		runFresh(t)
		return
	}
	// A collection would free memory of this test, from which the allocator might choose.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const size = 8 << 20
	const used, pages = size * 3 / 4, size * 3 / 4 / page
	if n := countFaults(t, func() { fill(used) }); n < pages {
		t.Errorf("%d faults for %d pages that were not populated", n, pages)
	}
	prefault.Heap(0, size)
	// The runtime's own threads cause some faults too, more on a busy machine.
	if n := countFaults(t, func() { fill(used) }); n > pages/4 {
		t.Errorf("%d faults for %d pages that were populated", n, pages)
	}
	if n := countFaults(t, func() { fill(used) }); n < pages/2 {
		t.Errorf("%d faults for %d pages beyond the populated ones", n, pages)
	}
	sink = nil
	debug.FreeOSMemory()
	prefault.Heap(0, size)
	debug.FreeOSMemory()
	if n := countFaults(t, func() { fill(used) }); n < pages/2 {
		t.Errorf("%d faults for %d pages that were given back", n, pages)
	}
}

// TestAgainAfterFork forks a process that shares the memory of this one until it starts a program,
// as processes with a user namespace of their own do.
func TestAgainAfterFork(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Requirement{Name: fmt.Sprintf("pages of %d bytes", page), Has: func() bool { return os.Getpagesize() == page }})
	if os.Getenv(childVariable) == "" {
		runFresh(t)
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const size, used, pages = 12 << 20, 4 << 20, 4 << 20 / page
	prefault.Heap(0, size)
	fork := func() {
		cmd := exec.CommandContext(t.Context(), "/bin/true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
	}
	fork()
	if n := countFaults(t, func() { fill(used) }); n < pages/2 {
		t.Errorf("%d faults for %d pages that were shared with another process", n, pages)
	}
	fork()
	prefault.Again()
	if n := countFaults(t, func() { fill(used) }); n > pages/4 {
		t.Errorf("%d faults for %d pages that were populated again", n, pages)
	}
}

// runFresh runs the current test in a process that has just started, in which the address of the
// next allocation is known.
func runFresh(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), childVariable+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("child process: %v\n%s", err, out)
	}
}

// fill allocates and touches memory in pieces of the size of small objects.
func fill(size int) {
	for ; size > 0; size -= page {
		piece := make([]byte, page)
		piece[0] = 1
		sink = append(sink, piece)
	}
}

// countFaults returns how many page faults a function causes.
func countFaults(t *testing.T, do func()) int64 {
	t.Helper()
	var before, after syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	do()
	if err == nil {
		err = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	}
	if err != nil {
		t.Fatal(err)
	}
	return after.Minflt - before.Minflt
}
