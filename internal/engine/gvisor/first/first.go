// Package first owns what a process of a box does before anything else: it takes
// the memory that its start will need. It imports only what has no imports of its
// own, so that Go initialises it before the standard library; a test watches that.
package first

import "github.com/crannog/crannog/internal/prefault"

// heaps is how much of Go's heap each kind of process touches until a box runs,
// by `perf record -e page-faults -c 1 -d`.
var heaps = [...]struct {
	name string // argv[0]
	size uintptr
}{
	{"crannog-boot", 2816 << 10},
	{"runsc-gofer", 2816 << 10},
	{"runsc-sandbox", 9728 << 10},
}

// Known is set in processes of a box.
var Known bool

func init() {
	name, _ := prefault.Arguments()
	for _, h := range heaps {
		if h.name == name {
			Known = true
			prefault.Heap(h.size)
		}
	}
}
