package ingest_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func blocks(t *testing.T, path string) int64 {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Blocks * 512
}

// After 50 sandboxes have been created and removed, no descriptor, goroutine or file is left.
func TestNothingIsLeft(t *testing.T) {
	r := newRig(t)
	s := r.open()
	count := func() (descriptors, goroutines int) {
		t.Helper()
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list), runtime.NumGoroutine()
	}
	fds, routines := count()
	for i := range uint64(50) {
		s.Follow(box)
		r.write("events", exec(i+1))
		r.drain(s, true)
		if err := s.Leave(box); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Remove(box); err != nil {
		t.Fatal(err)
	}
	hosttest.EventuallyNoError(t, func() error {
		if f, g := count(); f > fds || g > routines {
			return fmt.Errorf("%d descriptors and %d goroutines, before %d and %d", f, g, fds, routines)
		}
		return nil
	})
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	if n := len(r.record.Entries()); n != 50 {
		t.Errorf("%d entries", n)
	}
}
