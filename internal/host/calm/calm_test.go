package calm_test

import (
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/host/calm"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestMonitorChangesOnlyTheMonitorThread(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	if err := calm.Monitor(); err != nil {
		t.Fatal(err)
	}
	// The monitor may have started another thread, which inherits its slack.
	if slow := slowThreads(t); len(slow) == 0 || slices.Contains(slow, os.Getpid()) {
		t.Errorf("the threads %v have the timer slack, want the monitor and not the main thread %d", slow, os.Getpid())
	}
	again, err := calm.Resume(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if slow := slowThreads(t); len(slow) != 0 {
		t.Errorf("after Resume, the threads %v have the timer slack", slow)
	}
	again()
	if slow := slowThreads(t); len(slow) == 0 {
		t.Error("afterwards, no thread has the timer slack")
	}
}

// slowThreads returns the threads of this process that have the timer slack.
func slowThreads(t *testing.T) (slow []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		text, err := os.ReadFile("/proc/" + entry.Name() + "/timerslack_ns")
		if os.IsNotExist(err) {
			continue // a thread that has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if n == int(calm.Slack) {
			id, err := strconv.Atoi(entry.Name())
			if err != nil {
				t.Fatal(err)
			}
			slow = append(slow, id)
		}
	}
	return slow
}

func TestGarbageCollectionResumes(t *testing.T) {
	before := debug.SetGCPercent(80)
	defer debug.SetGCPercent(before)
	calm.DelayGC(time.Hour, 1<<40)
	if now := debug.SetGCPercent(80); now != -1 {
		t.Errorf("GC percent is %d, want -1 (off)", now)
	}
	calm.DelayGC(0, 1<<40)
	hosttest.Eventually(t, "garbage is collected again", func() bool { return debug.SetGCPercent(-1) == 80 })
}
