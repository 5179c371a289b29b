package sandbox

import (
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/filetree/hosttools"
)

// Settings are the rules that an operator may change. Zero in a field is the
// default.
type Settings struct {
	MaxLive        int           // sandboxes alive at once
	MaxPaused      int           // sandboxes paused at once
	DefaultTimeout time.Duration // life of a sandbox that asks for none
	MaxTimeout     time.Duration // longest life that a key may ask for
	Retention      time.Duration // how long the record of a stopped one is kept
	// SnapshotRetention is how long snapshots are kept; zero is until somebody
	// removes them. The budget of the disk bounds them in any case.
	SnapshotRetention time.Duration
	// SnapshotBudget is how much of the disk saved states may take. The caller that
	// opens Images uses it; zero is their default.
	SnapshotBudget int64
	Max            Limits // most that one sandbox may ask for; zero is the host's
	Level          string // the level of a sandbox that asks for none
	// Organisation bounds what any sandbox may reach, Project what those of
	// this state directory may. Nil is no further bound.
	Organisation, Project *policy.Document
	// AgentsAnswer lets the key that asks for access for its sandbox answer
	// that question too, which an agent's host may do without asking anybody.
	AgentsAnswer bool
	// Tools is where version managers are looked for; without a home none is found.
	Tools hosttools.Host
	// Mounts are directories of the host that callers may mount by name.
	Mounts map[string]Mount
	// AnyBoundary accepts an engine without a wall: for tests only.
	AnyBoundary bool
}

// WithDefaults returns the settings with every zero field replaced by its default.
func (s Settings) WithDefaults() Settings {
	if s.MaxLive == 0 {
		s.MaxLive = 200
	}
	if s.MaxPaused == 0 {
		s.MaxPaused = 1000
	}
	if s.DefaultTimeout == 0 {
		s.DefaultTimeout = 5 * time.Minute
	}
	if s.MaxTimeout == 0 {
		s.MaxTimeout = 24 * time.Hour
	}
	if s.Retention == 0 {
		s.Retention = 24 * time.Hour
	}
	if s.Level == "" {
		s.Level = defaultLevel
	}
	return s
}

// defaultLevel is the level of a sandbox that asks for none.
const defaultLevel = "standard"
