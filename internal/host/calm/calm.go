// Package calm owns what spares a process that has just started the work that Go
// does for processes that run for long: collections of garbage, and wake-ups of
// the scheduler's monitor.
package calm

import (
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"time"
)

// Uncollected leaves garbage alone for a while, or until the process has taken
// so many bytes.
func Uncollected(while time.Duration, most int64) {
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(most)
	time.AfterFunc(while, func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
}

// Slack is how much later than asked for the kernel may wake a monitor.
const Slack = 4 * time.Millisecond

// Monitor has the kernel wake the monitor of Go's scheduler less often. Each time
// that a process has been busy and sleeps, the monitor sleeps for 20 µs fifty times
// in a row, and each of these sleeps is a switch. It looks for threads that a
// system call holds up and for goroutines that run for more than 10 ms, so that a
// few milliseconds later is soon enough. It needs CAP_SYS_NICE; without it nothing
// changes, and an error says so.
func Monitor() error {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	// The runtime starts the monitor before all other threads. IDs are those of
	// the namespace of /proc, which may not be that of this process.
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
