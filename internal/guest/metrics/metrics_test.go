package metrics

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func TestStatTicks(t *testing.T) {
	const tail = " S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 20 0 1 0 99"
	for stat, want := range map[string]int64{
		"7 (sh)" + tail:                  127,
		"7 (a) b) (c)" + tail:            127,
		"7 (x)":                          0,
		"":                               0,
		"7 (sh) S 1 2 3 4 5 6 7 8 9 x y": 0,
	} {
		if got := statTicks(stat); got != want {
			t.Errorf("%q: %d, want %d", stat, got, want)
		}
	}
}

func TestReadMeminfo(t *testing.T) {
	name := filepath.Join(t.TempDir(), "meminfo")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("MemTotal:  1000 kB\nMemFree: 400 kB\nBuffers: 50 kB\nCached: 150 kB\nSwapCached: 7 kB\nOdd\n")
	if m, err := readMeminfo(name); err != nil || m != (memory{1000 << 10, 400 << 10, 200 << 10}) {
		t.Errorf("%+v %v", m, err)
	}
	write("nonsense")
	if _, err := readMeminfo(name); err == nil {
		t.Error("nonsense was accepted")
	}
}

// The time that a child spent counts while it runs and when it is dead.
func TestCPUTime(t *testing.T) {
	// This process alone: others of the machine come and go, with their time.
	proc, self := t.TempDir(), strconv.Itoa(os.Getpid())
	if err := os.Symlink(filepath.Join("/proc", self), filepath.Join(proc, self)); err != nil {
		t.Fatal(err)
	}
	before, err := cpuTime(proc)
	if err != nil {
		t.Fatal(err)
	}
	busy := exec.CommandContext(t.Context(), "/bin/sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")
	if err := busy.Run(); err != nil {
		t.Fatal(err)
	}
	after, err := cpuTime(proc)
	if err != nil {
		t.Fatal(err)
	}
	spent := busy.ProcessState.UserTime() + busy.ProcessState.SystemTime()
	if spent < 50*time.Millisecond {
		t.Fatalf("the child spent only %v", spent)
	}
	if after-before < spent/2 {
		t.Errorf("counted %v of %v", after-before, spent)
	}
}

func TestShare(t *testing.T) {
	s := New(Limits{})
	s.at = time.Now().Add(-time.Second)
	first, err := s.cpu()
	if err != nil || first <= 0 {
		t.Fatalf("%v %v", first, err)
	}
	// Two samples in a row give the same answer rather than noise. On a busy
	// machine two calls may not be in a row.
	for range 100 {
		at, was := s.at, s.percent
		again, err := s.cpu()
		if err != nil {
			t.Fatal(err)
		}
		if !s.at.Equal(at) {
			continue
		}
		if again != was {
			t.Errorf("%v after %v", again, was)
		}
		return
	}
	t.Error("each sample is a new one")
}
