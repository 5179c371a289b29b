package gvisor

import "time"

// places is how many goroutines more than there are processors a sandbox's kernel
// and its file server may run at once.
//
// Go counts a goroutine in a system call as running until its monitor, which
// sleeps for up to 10 ms, has found it there twice. gVisor's kernel has several
// that wait in calls of which Go knows nothing but that they may take long: one
// for each connection to the file server, which checks whether that is alive,
// one for events of the host's files, one for calls of ours. They begin to wait
// as soon as a sandbox runs; then two processors had no place left, and all
// programs of the sandbox waited for the monitor.
const places = 6

// alone is how long after it makes its platform a kernel does without them. Until then it drops
// capabilities on each of its threads, one after the other; soon after, its guest starts.
const alone = 20 * time.Millisecond

// serving is when a file server may use all processors: once it has started.
const serving = 300 * time.Millisecond

// Where others wait for the processors too, no processor time is left over, and more places only
// mean more threads that take turns: a hundred sandboxes at once took a tenth longer with them.
// Crowding shows in how late a timer fires. If it is later than crowded, the host is checked again
// after recheck.
const (
	crowded = 3 * time.Millisecond
	recheck = 250 * time.Millisecond
)

// whenCalm calls a function after a while, or later if the host is crowded then.
func whenCalm(now func() time.Time, after time.Duration, do func()) {
	due := now().Add(after)
	time.AfterFunc(after, func() {
		if now().Sub(due) > crowded {
			whenCalm(now, recheck, do)
			return
		}
		do()
	})
}
