package sandbox

import "github.com/crannog/crannog/internal/engine"

// Reasons why a sandbox stopped, beside the engine's own.
const (
	ReasonKilled  = string(engine.ReasonKilled)
	ReasonCrashed = string(engine.ReasonCrashed)
	ReasonTimeout = "timeout" // its time was up
	ReasonLost    = "lost"    // it was gone when we looked, for instance after a reboot
)

// ReasonPauseFailed is why a sandbox stopped that could not be paused for as
// long as records are kept.
const ReasonPauseFailed = "pause_failed"
