// Package calm owns reducing the background work of the Go runtime in a short-lived process:
// garbage collections, and wake-ups of the scheduler's monitor thread.
package calm

import (
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"time"
)

// DelayGC turns garbage collection off for a while, or until the process has allocated the
// given number of bytes.
func DelayGC(while time.Duration, limit int64) {
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(limit)
	time.AfterFunc(while, func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
}

// Slack is how much later than requested the kernel may wake a monitor thread.
const Slack = 4 * time.Millisecond

// Monitor makes the kernel wake the scheduler's monitor thread less often. Whenever a busy process
// goes to sleep, its monitor sleeps for 20 µs fifty times in a row, and each sleep costs a context
// switch. The monitor looks for threads that are blocked in a system call and for goroutines that
// run for more than 10 ms, so it may wake a few milliseconds later. Monitor needs CAP_SYS_NICE;
// without it nothing changes and it returns an error.
func Monitor() error {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	// The runtime starts the monitor before all other threads. Thread IDs are those of the
	// namespace of /proc, which may differ from this process's own.
	threads := make([]int, 0, len(entries))
	for _, entry := range entries {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			return err
		}
		threads = append(threads, id)
	}
	slices.Sort(threads)
	if len(threads) < 2 {
		return os.ErrNotExist
	}
	return os.WriteFile("/proc/"+strconv.Itoa(threads[1])+"/timerslack_ns", []byte(strconv.FormatInt(Slack.Nanoseconds(), 10)), 0)
}
