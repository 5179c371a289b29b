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

// isPrestarted reports whether the arguments of a kernel process show that it was prestarted for a
// later restore.
func isPrestarted(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		dir, ok := strings.CutPrefix(arg, "--bundle=")
		return ok && strings.HasPrefix(filepath.Base(dir), prestartedPrefix+waitingName)
	})
}

// preheatDelay is how long after the creation of its platform a prestarted kernel is preheated. By
// then its own start has finished.
const preheatDelay = 25 * time.Millisecond

// preheatBytes is how much memory is populated, a little more than a kernel needs to read a state.
const preheatBytes = 8 << 20

// occupied is set once a guest runs in this kernel.
var occupied atomic.Bool

// preheat populates the memory that a restore in a prestarted kernel needs: memory for the state's
// objects, and the pages of this program. It does so while no caller waits. Without it, each page
// would be a page fault, and page faults were a quarter of the time of a restore. Unused memory is
// released after the restore.
func preheat(pages []span) {
	if occupied.Load() {
		return
	}
	populate(preheatBytes)
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
	runtime.KeepAlive(pieces) // otherwise the memory could be reused before all is populated
	runtime.GC()
}
