package sandbox

import "github.com/crannog/crannog/internal/engine"

// Reasons why a sandbox stopped, in addition to the engine's own.
const (
	ReasonKilled  = string(engine.ReasonKilled)
	ReasonCrashed = string(engine.ReasonCrashed)
	ReasonTimeout = "timeout" // its lifetime has ended
	ReasonLost    = "lost"    // it was found missing, for instance after a reboot
)

// ReasonPauseFailed is the reason of a sandbox that ended because it could not be paused.
const ReasonPauseFailed = "pause_failed"
