// Package first owns the first actions of a process of a sandbox. It populates the memory that the
// start will need, or does a small task and exits before other packages are initialised. It imports
// only packages without imports, so that Go initialises it before the standard library. A test
// checks that.
package first

import (
	"runtime"

	"github.com/crannog/crannog/internal/host/prefault"
)

// Known is set in processes of a sandbox that initialise all of gVisor.
var Known bool

// Processors is the value of GOMAXPROCS before this package changed it.
var Processors = runtime.GOMAXPROCS(0)

func init() {
	args := prefault.Arguments()
	if fd, dir, ok := parseUnmount(args); ok {
		prefault.Exit(unmount(fd, dir))
	}
	name := prefault.Base(args)
	switch name {
	case "crannog-boot", "runsc-gofer", "runsc-sandbox":
		Known = true
		prepareRuntime()
	}
	switch name {
	case "crannog-boot":
		// This process exits when the sandbox runs, so unused memory costs nothing.
		prefault.Data()
		prefault.Heap(0, 3<<20)
	case "runsc-gofer":
		prefault.Heap(lowSkip, fileServerHeap)
	case "runsc-sandbox":
		prefault.Heap(lowSkip, sentryHeap)
	}
}

// prepareRuntime changes settings of the Go runtime for the start of a process.
func prepareRuntime() {
	// With one processor, no work is distributed while packages initialise themselves. If the other
	// processors were used and given up later, each would leave a partly used block of each size
	// class, and a page or two of the runtime's tables for it.
	runtime.GOMAXPROCS(1)
	// No profile of the memory is ever read.
	runtime.MemProfileRate = 0
}

// The sizes below are the memory that the start of a process touches, as measured with
// `perf record -e page-faults -c 1 -d`. What stays unused of it is occupied for the whole life of
// the sandbox, so it is a small part.
const (
	// lowSkip is one page of the runtime's allocator. Without it, prefault would also populate the
	// memory below, which the runtime has reserved for the smallest objects. A quarter of that stays
	// unused.
	lowSkip = 8 << 10
	// sentryHeap is for the kernel process. A twentieth of it stays unused. A seventh of the memory
	// beyond it does, mostly stacks, of which goroutines use little.
	sentryHeap = 6 << 20
	// fileServerHeap is for the file server. A sixth of it stays unused, and a quarter of the memory
	// beyond it.
	fileServerHeap = 512 << 10
)
