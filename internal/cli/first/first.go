// Package first runs before all other packages of the command line: if this process will run a
// sandbox, it allocates the memory for that. Its imports have no imports of their own, so that Go
// initialises it before the standard library.
package first

import (
	"runtime"

	"github.com/crannog/crannog/internal/host/prefault"
)

// heap is the part of Go's heap that crannog run uses, in bytes.
const heap = 13 << 20

func init() {
	args := prefault.Arguments()
	if prefault.Base(args) == "crannog" && len(args) > 1 && args[1] == "run" {
		runtime.MemProfileRate = 0 // the command does not show the profile, and sampling costs memory
		prefault.Data()
		prefault.Heap(0, heap)
	}
}
