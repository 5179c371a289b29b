// Package early owns what a process of a sandbox does, or spares itself, before
// gVisor's packages initialise themselves. Go initialises a package as soon as
// all that it imports is ready, the first by its path; so this one imports
// next to nothing, and comes before all of gVisor's. A test watches that.
//
// Most of a start of this program is their initialisation: 5 to 7 ms of
// processor time, three times for each sandbox. Package first comes before this one,
// and may import nothing.
package early

import (
	"os"
	"path/filepath"
	"sync"
	_ "unsafe" // for go:linkname

	"github.com/crannog/crannog/internal/engine/gvisor/first"
)

// kernelArg0 is the name of the process in which a sandbox's programs run.
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
