// Package first owns what the command line does before anything else: if it runs a sandbox in its
// own process, it allocates the memory that this will need. It has no imports with imports of their
// own, so that Go initialises it before the standard library.
package first

import "github.com/crannog/crannog/internal/host/prefault"

// heap is how much of Go's heap `crannog run` uses.
const heap = 10 << 20

func init() {
	args := prefault.Arguments()
	if prefault.Base(args) == "crannog" && len(args) > 1 && args[1] == "run" {
		prefault.Data()
		prefault.Heap(0, heap)
	}
}
