package sandbox

import "github.com/crannog/crannog/internal/state/hostfiles"

// Needs are the files of the host that a saved memory refers to: files of the template, of programs
// and of tools that programs had open or mapped. Other changes of the host's packages do not matter
// to it, and these matter only if no copy was kept.
type Needs struct {
	Files []hostfiles.File `json:"files"`
}

// HostFiles keeps copies of files of the host that saved memory refers to.
type HostFiles interface {
	// Keep makes a copy, and sets Kept if there is one then.
	Keep(f hostfiles.File, o hostfiles.Open) (hostfiles.File, error)
	// Find returns the path of a copy, or "".
	Find(f hostfiles.File) (string, error)
	// Prune removes copies that are in no list.
	Prune(lists ...[]hostfiles.File) (freed int64, err error)
	// Sync makes the copies survive a loss of power.
	Sync() error
}
