package sandbox

import "github.com/crannog/crannog/internal/engine"

// Reasons why a sandbox stopped, in addition to the engine's own.
const (
	ReasonKilled  = string(engine.ReasonKilled)
	ReasonCrashed = string(engine.ReasonCrashed)
	ReasonTimeout = "timeout" // its time was up
	ReasonLost    = "lost"    // it was found missing, for instance after a reboot
)

// ReasonPauseFailed is why a sandbox was ended that could not be paused for a long time.
const ReasonPauseFailed = "pause_failed"
