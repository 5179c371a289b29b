package gvisor

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// The kernel reports processor time per process, also for one whose name looks like other fields.
func TestProcessorTimeOfProcesses(t *testing.T) {
	name := t.TempDir() + "/x) R 1 1 1 (y"
	if err := os.Symlink("/bin/sh", name); err != nil {
		t.Fatal(err)
	}
	busy := exec.CommandContext(t.Context(), name, "-c", "while :; do :; done")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "some processor time", func() bool { return cpuTime(busy.Process.Pid) > 5*clockTick })
	if got := privateMemory(busy.Process.Pid); got <= 0 {
		t.Errorf("its memory: got %d bytes, want some", got)
	}
	if err := busy.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = busy.Wait() // it was killed
	if got, memory := cpuTime(busy.Process.Pid), privateMemory(busy.Process.Pid); got != 0 || memory != 0 {
		t.Errorf("after its end: got %v and %d bytes, want none", got, memory)
	}
	if got := cpuTime(os.Getpid()); got < 0 || got > time.Hour {
		t.Errorf("this process: got %v", got)
	}
}
