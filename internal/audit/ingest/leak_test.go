package ingest_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// blocks returns the disk space of a file in bytes.
func blocks(t *testing.T, path string) int64 {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Blocks * 512
}

// After 50 sandboxes have been created and removed, no descriptor, goroutine or file is left.
func TestRemoveLeavesNoResources(t *testing.T) {
	r := newFixture(t)
	s := r.open()
	count := func() (descriptors, goroutines int) {
		t.Helper()
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list), runtime.NumGoroutine()
	}
	fdsBefore, routinesBefore := count()
	for i := range uint64(50) {
		s.Follow(sandboxID)
		r.write("events", exec(i+1))
		r.drain(s, true)
		if err := s.Leave(sandboxID); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Remove(sandboxID); err != nil {
		t.Fatal(err)
	}
	hosttest.EventuallyNoError(t, func() error {
		if f, g := count(); f > fdsBefore || g > routinesBefore {
			return fmt.Errorf("%d descriptors and %d goroutines, before %d and %d", f, g, fdsBefore, routinesBefore)
		}
		return nil
	})
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Errorf("List after Remove: got %v, %v, want none", list, err)
	}
	if n := len(r.log.Entries()); n != 50 {
		t.Errorf("got %d entries, want 50", n)
	}
}
