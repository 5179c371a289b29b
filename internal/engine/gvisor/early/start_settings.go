package early

import (
	"runtime"
	"runtime/debug"

	"github.com/crannog/crannog/internal/host/calm"
)

var (
	// Processors is the value of GOMAXPROCS before this package changed it.
	Processors = runtime.GOMAXPROCS(0)
	// Percent is the garbage collection target before this package changed it.
	Percent = 100
)

// applyStartSettings prepares a process that will initialise all of gVisor.
func applyStartSettings() {
	// A collection would find almost nothing. Each process later decides when it starts to collect.
	Percent = debug.SetGCPercent(-1)
	// With one processor, no work is distributed while packages initialise themselves. If the other
	// processors were used and given up later, each would leave a partly used block of each size
	// class.
	runtime.GOMAXPROCS(1)
	_ = calm.Monitor() // without root the setting stays
}
