package sandbox

import (
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/filetree/hosttools"
)

// Settings are the rules that an operator may change. A zero field stands for the default.
type Settings struct {
	MaxLive        int           // sandboxes alive at once
	MaxPaused      int           // sandboxes paused at once
	DefaultTimeout time.Duration // lifetime of a sandbox that requests none
	MaxTimeout     time.Duration // longest lifetime that a key may request
	Retention      time.Duration // how long the row of a stopped one is kept
	// SnapshotRetention is how long snapshots are retained; zero means until they are removed. The
	// disk budget limits them in any case.
	SnapshotRetention time.Duration
	// SnapshotBudget is how much disk saved states may use. The caller that opens Images applies
	// it; zero is their default.
	SnapshotBudget int64
	Max            Limits // largest that one sandbox may request; zero is the host's
	Level          string // the level of a sandbox that requests none
	// Organisation limits the access of every sandbox, and Project the access of the sandboxes of
	// this state directory. Nil is no further limit.
	Organisation, Project *policy.Document
	// AgentsAnswer lets the key that requests access for its sandbox also approve the request. An
	// agent's host program may then approve without asking a person.
	AgentsAnswer bool
	// Tools is the home directory in which version managers are searched. Without one, none is
	// found.
	Tools hosttools.Host
	// Mounts are directories of the host that callers may mount by name.
	Mounts map[string]Mount
	// VolumeBudget is how much disk the volumes of each key may use; zero is the default of package
	// volumes.
	VolumeBudget int64
	// AnyBoundary accepts an engine without a boundary: for tests only.
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

// defaultLevel is the level of a sandbox that requests none.
const defaultLevel = "standard"
