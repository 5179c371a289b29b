// Package early owns the work that a process of a sandbox does, or skips, before gVisor's packages
// initialise themselves. Go initialises a package as soon as all its imports are ready, in the
// order of their paths. This package imports almost nothing, so it comes before all of gVisor's. A
// test checks that.
//
// Initialisation takes most of the start of this program: 5 to 7 ms of processor time, three times
// for each sandbox. Package first comes before this one, and may import nothing.
package early

import (
	"os"
	"path/filepath"
	"sync"
	_ "unsafe" // for go:linkname

	"github.com/crannog/crannog/internal/engine/gvisor/first"
)

// kernelArg0 is the argv[0] of the process in which a sandbox's programs run.
const kernelArg0 = "runsc-sandbox"

func init() {
	if len(os.Args) == 0 {
		return
	}
	name := filepath.Base(os.Args[0])
	if name != kernelArg0 {
		unimplementedCalls.Do(func() {})
	}
	if first.Known {
		begin()
	}
}

// unimplementedCalls is what guards gVisor's counter of the system calls that it does not know: two
// thousand values with a name each. Only the kernel process counts, so the counter is made only
// there.
//
//go:linkname unimplementedCalls gvisor.dev/gvisor/pkg/sentry/kernel.unimplementedSyscallCounterInit
var unimplementedCalls sync.Once
