package gvisor

import (
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
)

// waits reports whether the arguments of a kernel process say that it was prestarted for a later
// restore.
func waits(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		dir, ok := strings.CutPrefix(arg, "--bundle=")
		return ok && strings.HasPrefix(filepath.Base(dir), prestartedDir+waitingName)
	})
}

// unclaimed is how long a prestarted kernel has to finish its own start.
const unclaimed = 25 * time.Millisecond

// heated is a little more memory than a kernel needs to read a state.
const heated = 8 << 20

// occupied is set once a guest runs in this kernel.
var occupied atomic.Bool

// preheat populates, while no caller waits, the memory that a sandbox needs at once when it is
// restored in a prestarted kernel: memory for the state's objects, and the pages of this program.
// Otherwise each page is a page fault, and page faults were a quarter of the time of a restore.
// Unneeded memory is released after the restore.
func preheat(pages []span) {
	if occupied.Load() {
		return
	}
	populate(heated)
	for _, s := range pages {
		// An error changes nothing.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, s.start, s.end-s.start, unix.MADV_POPULATE_READ)
	}
}

// populate populates the given amount of memory and returns it to Go's allocator, which keeps it
// until a collection is due.
func populate(bytes int) {
	const piece = 64 << 10
	pieces := make([][]byte, bytes/piece)
	for i := range pieces {
		pieces[i] = make([]byte, piece)
		for at := 0; at < piece; at += hostarch.PageSize {
			pieces[i][at] = 1
		}
	}
	runtime.KeepAlive(pieces) // keep the memory until here
	runtime.GC()
}
