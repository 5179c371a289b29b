package recording

import (
	"os"
	"testing"
	"time"
)

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// The files of an ended sandbox are closed, even if the end of a command is reported later, and its
// recordings remain.
func TestReleaseClosesFiles(t *testing.T) {
	s := New(Options{Dir: t.TempDir()})
	before := descriptors(t)
	late, err := s.Begin("box1", Head{How: "start", Command: []string{"cat"}, Started: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	keep(t, s, "box1", "one")
	if descriptors(t) == before {
		t.Fatal("control: nothing is open")
	}
	if err := s.Release("box1"); err != nil {
		t.Fatal(err)
	}
	late.Output(1, []byte("late"))
	if err := late.End(Tail{Ended: time.Now(), Exit: zero()}); err != nil {
		t.Fatal(err)
	}
	if n := descriptors(t); n != before {
		t.Errorf("%d descriptors, and %d before", n, before)
	}
	if one, two := printed(t, s, "box1", 2), printed(t, s, "box1", 1); one != "one" || two != "late" {
		t.Errorf("%q, %q", one, two)
	}
	if err := s.Release("unknown1"); err != nil {
		t.Error(err)
	}
}
