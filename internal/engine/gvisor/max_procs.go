package gvisor

import "time"

// extraProcs is added to GOMAXPROCS, the number of goroutines that may run at once, in a sandbox's
// kernel and its file server.
//
// Go counts a goroutine in a system call as running until its monitor thread, which sleeps for up
// to 10 ms, has found it there twice. gVisor's kernel has several goroutines in calls that block
// for long without Go's knowledge: one for each connection to the file server, one for events of
// host files, and one for our calls. They start to wait as soon as a sandbox runs. On two
// processors, all programs of the sandbox would then wait for the monitor.
const extraProcs = 6

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
