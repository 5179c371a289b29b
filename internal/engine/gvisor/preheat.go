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

// waits reports from its arguments whether a kernel process was made to wait for a sandbox that
// will continue in it.
func waits(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		dir, ok := strings.CutPrefix(arg, "--bundle=")
		return ok && strings.HasPrefix(filepath.Base(dir), prestartedDir+waitingName)
	})
}

// unclaimed is how long a spare kernel has to finish its own start.
const unclaimed = 25 * time.Millisecond

// heated is how much memory a kernel needs to read a state, and a little more.
const heated = 8 << 20

// occupied is set once a guest runs in this kernel.
var occupied atomic.Bool

// preheat makes a spare kernel take from the host, while no caller waits, what a sandbox
// that is restored in it will touch at once. That is memory for the state's objects,
// and the pages of this program. Each of them is a page fault otherwise, and page
// faults were a quarter of the time of a restore. Unneeded memory is given back when
// the sandbox has settled.
func preheat(pages []span) {
	if occupied.Load() {
		return
	}
	touch(heated)
	for _, s := range pages {
		// An error leaves things as they are.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, s.start, s.end-s.start, unix.MADV_POPULATE_READ)
	}
}

// touch takes the given amount of memory and gives it to Go's own allocator, which keeps it as long
// as no collection is due.
func touch(bytes int) {
	const piece = 64 << 10
	pieces := make([][]byte, bytes/piece)
	for i := range pieces {
		pieces[i] = make([]byte, piece)
		for at := 0; at < piece; at += hostarch.PageSize {
			pieces[i][at] = 1
		}
	}
	runtime.KeepAlive(pieces) // until here
	runtime.GC()
}
