package recording

import (
	"os"
	"testing"
	"time"
)

// descriptors returns the number of open descriptors of this process.
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
	record(t, s, "box1", "one")
	if descriptors(t) == before {
		t.Fatal("no file is open before Release")
	}
	if err := s.Release("box1"); err != nil {
		t.Fatal(err)
	}
	late.Output(1, []byte("late"))
	if err := late.End(Tail{Ended: time.Now(), Exit: exitZero()}); err != nil {
		t.Fatal(err)
	}
	if n := descriptors(t); n != before {
		t.Errorf("got %d open descriptors after Release, want %d", n, before)
	}
	if one, two := output(t, s, "box1", 2), output(t, s, "box1", 1); one != "one" || two != "late" {
		t.Errorf("recorded output: got %q and %q, want one and late", one, two)
	}
	if err := s.Release("unknown1"); err != nil {
		t.Error(err)
	}
}
