// Package calm owns reducing the background work of the Go runtime in a short-lived process:
// garbage collections, and wake-ups of the scheduler's monitor thread.
package calm

import (
	"errors"
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
func Monitor() error { return slowMonitor("self") }

// usualSlack is the kernel's default.
const usualSlack = 50 * time.Microsecond

// Resume lets the monitor thread of another process run as usual, until the returned function is
// called. While a busy process makes many blocking calls, a late monitor leaves processors unused.
func Resume(pid int) (again func(), err error) {
	process := strconv.Itoa(pid)
	threads, err := threadsOf(process)
	if err != nil {
		return nil, err
	}
	// Threads that the monitor has started inherited its slack.
	for _, thread := range threads {
		if err := setSlack(thread, usualSlack); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return func() { _ = slowMonitor(process) }, nil // fails if the process has ended
}

// slowMonitor gives a process's monitor thread the slack.
func slowMonitor(process string) error {
	threads, err := threadsOf(process)
	if err != nil {
		return err
	}
	if len(threads) < 2 {
		return os.ErrNotExist
	}
	return setSlack(threads[1], Slack)
}

// threadsOf returns the threads of a process in the order of their start. The runtime starts the
// monitor before all others but the first. Thread IDs are those of the namespace of /proc, which may
// differ from the process's own.
func threadsOf(process string) ([]int, error) {
	entries, err := os.ReadDir("/proc/" + process + "/task")
	if err != nil {
		return nil, err
	}
	threads := make([]int, 0, len(entries))
	for _, entry := range entries {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			return nil, err
		}
		threads = append(threads, id)
	}
	slices.Sort(threads)
	return threads, nil
}

// setSlack sets how much later than requested the kernel may wake a thread.
func setSlack(thread int, slack time.Duration) error {
	return os.WriteFile("/proc/"+strconv.Itoa(thread)+"/timerslack_ns", []byte(strconv.FormatInt(slack.Nanoseconds(), 10)), 0)
}
