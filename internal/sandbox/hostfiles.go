package sandbox

import "github.com/crannog/crannog/internal/state/hostfiles"

// Needs are the host files to which saved memory refers: files of the template, of programs and of
// tools that were open or mapped. Saved memory does not depend on other changes of the host's
// packages. If one of these files changes, restoring requires a copy of it.
type Needs struct {
	Files []hostfiles.File `json:"files"`
}

// HostFiles keeps copies of files of the host that saved memory refers to.
type HostFiles interface {
	// Keep makes a copy, and sets Kept if the copy exists afterwards.
	Keep(f hostfiles.File, o hostfiles.Open) (hostfiles.File, error)
	// Find returns the path of a copy, or "".
	Find(f hostfiles.File) (string, error)
	// Prune removes copies that are in none of the lists.
	Prune(lists ...[]hostfiles.File) (freed int64, err error)
	// Sync makes the copies survive a loss of power.
	Sync() error
}
