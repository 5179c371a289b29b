package gvisor

import (
	"sync/atomic"
	"time"
)

// extraProcs is added to GOMAXPROCS, the number of goroutines that may run at once, in a sandbox's
// kernel and its file server.
//
// Go counts a goroutine in a system call as running until its monitor thread, which sleeps for up
// to 10 ms, has found it there twice. gVisor's kernel has several goroutines in calls that block
// for long without Go's knowledge: one for each connection to the file server, one for events of
// host files, and one for our calls. They start to wait as soon as a sandbox runs. On two
// processors, all programs of the sandbox would then wait for the monitor.
const extraProcs = 6

// extraProcsWithoutFiles is extraProcs for a kernel without a file server. Each further processor
// costs memory for as long as the sandbox lives, because it allocates from blocks of its own.
const extraProcsWithoutFiles = 2

// withoutFileServer says that this process is the kernel of a sandbox without a file server.
var withoutFileServer atomic.Bool

// kernelExtraProcs is what this kernel adds. A kernel that was started before its sandbox is known
// may get one with a file server.
func kernelExtraProcs() int {
	if withoutFileServer.Load() {
		return extraProcsWithoutFiles
	}
	return extraProcs
}

// singleProcTime is how long after the creation of its platform a kernel runs without extraProcs.
// During that time it drops capabilities on each of its threads, one after the other. Soon after,
// its guest starts.
const singleProcTime = 20 * time.Millisecond

// fileServerStart is the time after which a file server may use all processors, because it has
// started.
const fileServerStart = 300 * time.Millisecond

// On a busy host, extraProcs only means more threads that share the processors: a hundred sandboxes
// at once took a tenth longer with it. The delay of timers shows how busy the host is.
const (
	// longDelay is the delay of a timer above which the host counts as busy.
	longDelay = 3 * time.Millisecond
	// recheckPause is the time after which a busy host is checked again.
	recheckPause = 250 * time.Millisecond
)

// runWhenIdle calls a function after the given time, or later if the host is busy then.
func runWhenIdle(now func() time.Time, after time.Duration, do func()) {
	due := now().Add(after)
	time.AfterFunc(after, func() {
		if now().Sub(due) > longDelay {
			runWhenIdle(now, recheckPause, do)
			return
		}
		do()
	})
}
