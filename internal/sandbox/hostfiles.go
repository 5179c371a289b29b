package sandbox

import "github.com/crannog/crannog/internal/state/hostfiles"

// Needs are the files of the host that a saved memory refers to: what programs had
// open or mapped of the template, of programs and of tools. No other change of the
// host's packages matters to it, and these only where no copy was kept.
type Needs struct {
	Files []hostfiles.File `json:"files"`
}

// HostFiles keeps copies of files of the host that saved memory refers to.
type HostFiles interface {
	// Keep has a copy, and sets Kept if there is one then.
	Keep(f hostfiles.File, o hostfiles.Open) (hostfiles.File, error)
	// Find returns the path of a copy, or "".
	Find(f hostfiles.File) (string, error)
	// Prune removes copies that no list has.
	Prune(lists ...[]hostfiles.File) (freed int64, err error)
	// Sync has what was copied outlive a loss of power.
	Sync() error
}
