// Package first owns what a process of a sandbox does before anything else. It populates the memory
// that the start will need, or does a small task and exits if nothing else has to be initialised.
// It imports only packages without imports, so that Go initialises it before the standard library.
// A test checks that.
package first

import "github.com/crannog/crannog/internal/host/prefault"

// Known is set in processes of a sandbox that initialise all of gVisor.
var Known bool

func init() {
	args := prefault.Arguments()
	if fd, dir, ok := unmounting(args); ok {
		prefault.Exit(unmount(fd, dir))
	}
	switch prefault.Base(args) {
	case "crannog-boot":
		Known = true
		// This process exits when the sandbox runs, so unused memory costs nothing.
		prefault.Data()
		prefault.Heap(0, 3<<20)
	case "runsc-gofer":
		// It needs little more than its packages do, see below.
		Known = true
	case "runsc-sandbox":
		Known = true
		prefault.Heap(sentrySkip, sentryHeap)
	}
}

// The kernel process populates the memory that its start touches after the packages are
// initialised, measured with `perf record -e page-faults -c 1 -d`. Memory of the packages
// themselves is left to page faults: it has a block for each size class, of which they use the
// first page or two. The same holds for the end of the range, which is mostly stacks of goroutines
// that use little of them. If those pages were populated, the sandbox would occupy 1.7 MB more for
// its whole life. Of these 3 MB a tenth stays unused.
const (
	sentrySkip = 1 << 20
	sentryHeap = 3 << 20
)
