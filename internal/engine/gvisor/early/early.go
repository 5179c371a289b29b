// Package early owns the settings that a process of a sandbox changes before gVisor's packages
// initialise themselves. Go initialises a package as soon as all its imports are initialised, in
// the order of import paths. This package imports almost nothing, so it comes before gVisor's
// packages. A test checks that.
//
// Initialisation takes most of the start of this program: 5 to 7 ms of processor time, three times
// for each sandbox. Package first runs even earlier, and may import nothing.
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
		applyStartSettings()
	}
}

// unimplementedCalls is the sync.Once of gVisor's counter of unknown system calls, which has two
// thousand named values. Only the kernel process needs the counter, so other processes do not
// create it.
//
//go:linkname unimplementedCalls gvisor.dev/gvisor/pkg/sentry/kernel.unimplementedSyscallCounterInit
var unimplementedCalls sync.Once
