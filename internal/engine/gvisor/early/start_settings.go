package early

import (
	"runtime/debug"

	"github.com/crannog/crannog/internal/host/calm"
)

// Percent is the garbage collection target before this package changed it.
var Percent = 100

// applyStartSettings prepares a process that will initialise all of gVisor.
func applyStartSettings() {
	// A collection would find almost nothing. Each process later decides when it starts to collect.
	Percent = debug.SetGCPercent(-1)
	_ = calm.Monitor() // without root the setting stays
}
