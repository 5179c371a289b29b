package gvisor

import "time"

// places is how many goroutines, in addition to the number of processors, a sandbox's kernel and
// its file server may run at once.
//
// Go counts a goroutine in a system call as running until its monitor, which sleeps for up to 10
// ms, has found it there twice. gVisor's kernel has several goroutines in calls that block for long
// without Go's knowledge: one for each connection to the file server, which checks whether that is
// alive, one for events of host files, and one for our calls. They start to wait as soon as a
// sandbox runs. On two processors no place was then left, and all programs of the sandbox waited
// for the monitor.
const places = 6

// singleFor is how long after the creation of its platform a kernel runs without these places.
// During that time it drops capabilities on each of its threads, one after the other. Soon after,
// its guest starts.
const singleFor = 20 * time.Millisecond

// serving is the time after which a file server may use all processors, because it has started.
const serving = 300 * time.Millisecond

// If other processes wait for the processors too, no processor time is idle, and more places only
// mean more threads that take turns: a hundred sandboxes at once took a tenth longer with them. The
// delay of timers shows how crowded the host is. If a timer fires later than crowded, the host is
// checked again after recheck.
const (
	longDelay = 3 * time.Millisecond
	recheck   = 250 * time.Millisecond
)

// runWhenIdle calls a function after a while, or later if the host is crowded then.
func runWhenIdle(now func() time.Time, after time.Duration, do func()) {
	due := now().Add(after)
	time.AfterFunc(after, func() {
		if now().Sub(due) > longDelay {
			runWhenIdle(now, recheck, do)
			return
		}
		do()
	})
}
