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
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	var slack []int
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
			slack = append(slack, id)
		}
	}
	if len(slack) != 1 || slices.Contains(slack, os.Getpid()) {
		t.Errorf("the threads %v have the timer slack, want one that is not the main thread %d", slack, os.Getpid())
	}
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
