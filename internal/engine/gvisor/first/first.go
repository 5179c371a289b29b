// Package first owns the first actions of a process of a sandbox. It populates the memory that the
// start will need, or does a small task and exits before other packages are initialised. It imports
// only packages without imports, so that Go initialises it before the standard library. A test
// checks that.
package first

import "github.com/crannog/crannog/internal/host/prefault"

// Known is set in processes of a sandbox that initialise all of gVisor.
var Known bool

func init() {
	args := prefault.Arguments()
	if fd, dir, ok := parseUnmount(args); ok {
		prefault.Exit(unmount(fd, dir))
	}
	switch prefault.Base(args) {
	case "crannog-boot":
		Known = true
		// This process exits when the sandbox runs, so unused memory costs nothing.
		prefault.Data()
		prefault.Heap(0, 3<<20)
	case "runsc-gofer":
		// The file server needs little more memory than its packages, see sentrySkip.
		Known = true
	case "runsc-sandbox":
		Known = true
		prefault.Heap(sentrySkip, sentryHeap)
	}
}

const (
	// sentrySkip is the memory that the initialisation of packages uses. It is not populated,
	// because the packages use only a page or two of each block.
	sentrySkip = 1 << 20
	// sentryHeap is the memory that the start of the kernel process touches after that, as measured
	// with `perf record -e page-faults -c 1 -d`. A tenth of it stays unused. Memory beyond it is
	// mostly stacks, of which goroutines use little. Populating all of it would occupy 1.7 MB more
	// for the whole life of the sandbox.
	sentryHeap = 3 << 20
)
