// Package first owns what a process of a sandbox does before anything else: it takes
// the memory that its start will need, or ends if it has so little to do that
// nothing else has to be initialised. It imports only what has no imports of its
// own, so that Go initialises it before the standard library; a test watches that.
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
		// It ends when the sandbox runs, so what it does not touch costs nothing.
		prefault.Data()
		prefault.Heap(0, 3<<20)
	case "runsc-gofer":
		// It needs little more than its packages take, see below.
		Known = true
	case "runsc-sandbox":
		Known = true
		prefault.Heap(sentrySkip, sentryHeap)
	}
}

// The kernel process populates what its start touches after its packages are
// initialised, by `perf record -e page-faults -c 1 -d`. What the packages take
// themselves is left to be faulted in: it is a block for each size of object, of
// which they use the first page or two. So is what comes last, which is mostly
// stacks of goroutines that use little of them. Populated, those pages would be the
// sandbox's for its whole life, 1.7 MB of them; of these 3 MB a tenth stays unused.
const (
	sentrySkip = 1 << 20
	sentryHeap = 3 << 20
)
