package early

import (
	"runtime"
	"runtime/debug"

	"github.com/crannog/crannog/internal/host/calm"
)

// What Go used before this package chose otherwise: how many processors, and
// how much garbage may gather before it is collected, in percent of what is not.
var (
	Processors = runtime.GOMAXPROCS(0)
	Percent    = 100
)

// begin prepares a process that is about to initialise all of gVisor.
func begin() {
	// A collection would find next to nothing. Each process decides later when
	// it begins to collect.
	Percent = debug.SetGCPercent(-1)
	// With one processor, no work is handed to another one while packages initialise themselves. If
	// the others were given up later, they would leave a partly used block of each size behind.
	runtime.GOMAXPROCS(1)
	_ = calm.Monitor() // without root it stays as it is
}
