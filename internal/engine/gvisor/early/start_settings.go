package early

import (
	"runtime"
	"runtime/debug"

	"github.com/crannog/crannog/internal/host/calm"
)

// The settings that Go had before this package changed them: the number of processors, and the
// garbage collection target in percent.
var (
	Processors = runtime.GOMAXPROCS(0)
	Percent    = 100
)

// begin prepares a process that will initialise all of gVisor.
func begin() {
	// A collection would find almost nothing. Each process later decides when it starts to collect.
	Percent = debug.SetGCPercent(-1)
	// With one processor, no work is distributed while packages initialise themselves. If the other
	// processors were used and given up later, each would leave a partly used block of each size
	// class.
	runtime.GOMAXPROCS(1)
	_ = calm.Monitor() // without root the setting stays
}
