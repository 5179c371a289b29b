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
			t.Errorf("statTicks(%q): got %d, want %d", stat, got, want)
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
		t.Errorf("readMeminfo: got %+v, %v, want 1000, 400 and 200 KiB", m, err)
	}
	write("nonsense")
	if _, err := readMeminfo(name); err == nil {
		t.Error("got no error for a file without MemTotal")
	}
}

// The time of a child process counts while it runs and after it has ended.
func TestCPUTime(t *testing.T) {
	// Read only this process. Other processes of the machine start and end, and with them their
	// time.
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
		t.Errorf("got %v, want at least half of %v", after-before, spent)
	}
}

func TestCPUIsSampledAtMostOncePerInterval(t *testing.T) {
	s := New(Limits{})
	s.at = time.Now().Add(-time.Second)
	first, err := s.cpu()
	if err != nil || first <= 0 {
		t.Fatalf("got %v, %v, want a positive percentage", first, err)
	}
	// Two calls in quick succession return the same value, because a new sample would be noise. On
	// a busy machine, two calls may be far apart.
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
			t.Errorf("second sample at once: got %v, want %v", again, was)
		}
		return
	}
	t.Error("each call took a new sample")
}

// If the sandbox shares the host's kernel, /proc/meminfo shows the memory of the host.
func TestMemoryOnTheHostKernel(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	page := int64(os.Getpagesize())
	write("proc/meminfo", "MemTotal: 99999999 kB\nMemFree: 1 kB\n")
	write("proc/1/statm", "100 30 10 5 0 20 0\n")
	write("proc/22/statm", "100 8 3 5 0 20 0\n")
	write("proc/self/statm", "100 999 0 5 0 20 0\n")
	s := New(Limits{})
	s.proc, s.groups = filepath.Join(dir, "proc"), filepath.Join(dir, "groups")
	limits := Limits{MemoryBytes: 64 << 20, HostMemory: true}
	want := func(what string, used, cache int64) {
		t.Helper()
		m, err := s.memory(limits)
		if err != nil || m != (memory{64 << 20, 64<<20 - used, cache}) {
			t.Errorf("memory with the %s: got %+v, %v, want %d bytes used", what, m, err, used)
		}
	}
	want("by process", 25*page, 0)
	write("groups/memory/memory.usage_in_bytes", "9000\n")
	write("groups/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 700\n")
	want("by a group of version 1", 9000, 700)
	write("groups/memory.current", "8000\n")
	write("groups/memory.stat", "anon 5\ninactive_file 600\n")
	want("by a group of version 2", 8000, 600)
	if m, err := s.memory(Limits{MemoryBytes: 64 << 20}); err != nil || m.total != 99999999<<10 {
		t.Errorf("own kernel: got %+v, %v", m, err)
	}
}
