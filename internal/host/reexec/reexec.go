// Package reexec owns the roles of this binary when it starts itself again. The role of a process
// is decided before main does anything else.
package reexec

import (
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
)

// Role is the task of a process that this binary starts from itself.
type Role struct {
	// Match reports whether the arguments of the process, argv[0] first, select this role.
	Match func(args []string) bool
	// Run does the work of the role. The process exits when it returns.
	Run func()
}

// Arg0 returns a Match function for processes whose argv[0] has one of these base names.
func Arg0(names ...string) func([]string) bool {
	return func(args []string) bool {
		base := filepath.Base(args[0])
		return slices.Contains(names, base)
	}
}

// dispatched is set when Dispatch has found no role.
var dispatched atomic.Bool

// Dispatch runs the first role that matches, and returns only if none did. A program that links the
// engine must call it first in main.
func Dispatch(roles ...Role) {
	if len(os.Args) > 0 {
		for _, r := range roles {
			if r.Match(os.Args) {
				r.Run()
				os.Exit(0)
			}
		}
	}
	dispatched.Store(true)
}

// Dispatched reports whether this program called Dispatch. If it did not, an engine must not start
// the program again: the child would run the program's main a second time instead of a role.
func Dispatched() bool { return dispatched.Load() }
