package cgroup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// group creates a group in the version that this host has.
func group(t *testing.T, limits engine.Limits) *Group {
	t.Helper()
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	tree, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	g, err := tree.Create(fmt.Sprintf("limits%d", time.Now().UnixNano()), limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// timeout bounds how long a program in a group may take.
const timeout = time.Minute

// shell runs a script in a group and returns its output.
func shell(t *testing.T, g *Group, script string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, time.Second
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if ctx.Err() != nil {
		t.Errorf("it did not end within %s: %s", timeout, out.String())
	}
	return out.String(), err
}

// allocate is a shell command that allocates 100 MiB.
const allocate = `/usr/bin/python3 -c 'x = b"x" * (100 << 20); print(len(x) >> 20)'`

// P6: the kernel kills a program that uses more memory than its group has, and counts that.
func TestMemoryLimit(t *testing.T) {
	large := group(t, engine.Limits{MemoryBytes: 256 << 20, MilliCPU: 2000})
	if out, err := shell(t, large, allocate); out != "100\n" || err != nil || large.OOMKills() != 0 {
		t.Fatalf("control: %q %v, %d kills", out, err, large.OOMKills())
	}
	small := group(t, engine.Limits{MemoryBytes: 32 << 20, MilliCPU: 2000})
	out, err := shell(t, small, "exec "+allocate)
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || small.OOMKills() == 0 {
		t.Errorf("100 MiB in a group of 32: %q %v, %d kills", out, err, small.OOMKills())
	}
}

// In version 2, when one process of a group is killed for lack of memory, the kernel kills all,
// because an engine cannot work without one of its processes.
func TestMemoryLimitKillsWholeGroup(t *testing.T) {
	hosttest.Need(t, hosttest.Unified)
	g := group(t, engine.Limits{MemoryBytes: 32 << 20, MilliCPU: 2000})
	out, err := shell(t, g, "sleep 1000 & "+allocate+"; echo survived; wait")
	if err == nil || strings.Contains(out, "survived") {
		t.Errorf("100 MiB in a group of 32: got %q, %v; want that all processes are killed", out, err)
	}
	for deadline := time.Now().Add(timeout); len(members(g.Dirs[unified])) != 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("processes %v are left", members(g.Dirs[unified]))
		}
	}
}

// P6: two busy programs in a group share the one processor of the group.
func TestProcessorLimit(t *testing.T) {
	const loops = `busy() { timeout 2 sh -c 'while :; do :; done'; }; busy & busy; wait; exit 0`
	share := func(milli int64) (used float64, throttled int64) {
		g := group(t, engine.Limits{MemoryBytes: 256 << 20, MilliCPU: milli})
		started := time.Now()
		if out, err := shell(t, g, loops); err != nil {
			t.Fatalf("the busy programs failed: %q %v", out, err)
		}
		dir := cmp.Or(g.Dirs[unified], g.Dirs["cpu"])
		return float64(g.Usage().CPUTime) / float64(time.Since(started)), keyed(filepath.Join(dir, "cpu.stat"), "nr_throttled")
	}
	// How much of two processors the group gets depends on the load of the machine. Even a limit
	// equal to the number of processors slows the group down at times, because the kernel assigns
	// time in slices.
	if used, throttled := share(2 * int64(runtime.NumCPU()) * 1000); used == 0 || throttled != 0 {
		t.Fatalf("control: %.2f processors, throttled %d times", used, throttled)
	}
	// On a machine that is so busy that the group gets less than its limit, it is not throttled.
	for try := 1; ; try++ {
		used, throttled := share(100)
		if used > 0.15 || throttled == 0 && (used > 0.09 || try == 5) {
			t.Errorf("used %.2f processors of 0.1, throttled %d times, at try %d", used, throttled, try)
		}
		if throttled > 0 || try == 5 {
			return
		}
	}
}

// The kernel has the written values.
func TestSettingsReachKernel(t *testing.T) {
	hosttest.Need(t, hosttest.Unified)
	g := group(t, limits)
	want := map[string]string{
		"memory.max": "536870912", "memory.swap.max": "0", "memory.oom.group": "1",
		"cpu.max": "150000 100000", "pids.max": "16384", "cpu.weight": "100", "cgroup.type": "domain",
	}
	compare := func() {
		t.Helper()
		for name, value := range want {
			got, err := os.ReadFile(filepath.Join(g.Dirs[unified], name))
			if err != nil || strings.TrimSpace(string(got)) != value {
				t.Errorf("%s contains %q, %v; want %q", name, got, err, value)
			}
		}
	}
	compare()
	for _, lower := range []bool{true, false} {
		if err := g.Yield(lower); err != nil {
			t.Fatal(err)
		}
		want["cpu.weight"] = map[bool]string{true: "10", false: "100"}[lower]
		compare()
	}
}

// A group's usage includes that of ended programs.
func TestUsageIncludesEndedPrograms(t *testing.T) {
	g := group(t, engine.Limits{MemoryBytes: 256 << 20, MilliCPU: 2000})
	before := g.Usage()
	script := `/usr/bin/python3 -c '
import os, time
x = b"x" * (64 << 20)
t = time.process_time()
while time.process_time() < t + 0.3: pass
print("ready", flush=True)
input()'`
	in, out := pipe(t), pipe(t)
	cmd := exec.Command("/bin/sh", "-c", "exec "+script)
	cmd.Stdin, cmd.Stdout = in.read, out.write
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if _, err := out.read.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	during := g.Usage()
	in.write.Close()
	_ = cmd.Wait() // an end of input is an exception
	if grown := during.MemoryBytes - before.MemoryBytes; grown < 64<<20 || grown > 128<<20 {
		t.Errorf("memory grew by %d", grown)
	}
	after := g.Usage()
	if used := after.CPUTime - before.CPUTime; used < 300*time.Millisecond || used > 30*time.Second {
		t.Errorf("used %s", used)
	}
	if after.MemoryBytes > before.MemoryBytes+(32<<20) {
		t.Errorf("%d bytes are used after the end, %d before", after.MemoryBytes, before.MemoryBytes)
	}
}

// pipeEnds is a pipe.
type pipeEnds struct{ read, write *os.File }

func pipe(t *testing.T) pipeEnds {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return pipeEnds{r, w}
}

// The returned limits are those in force, not the requested ones.
func TestBoundsReadsKernelLimits(t *testing.T) {
	g := group(t, engine.Limits{MemoryBytes: 64 << 20, MilliCPU: 1500, PIDs: 10})
	if l := g.Bounds(); l != (engine.Limits{MemoryBytes: 64 << 20, MilliCPU: 1500}) {
		t.Errorf("read back as %+v", l)
	}
	settings, dir := [][2]string{{"cpu.cfs_quota_us", "-1"}}, g.Dirs["cpu"]
	if g.Dirs[unified] != "" {
		settings, dir = [][2]string{{"cpu.max", "max 100000"}}, g.Dirs[unified]
	}
	if err := writeAll(dir, settings); err != nil {
		t.Fatal(err)
	}
	if l := g.Bounds(); l.MilliCPU != 0 || l.MemoryBytes != 64<<20 {
		t.Errorf("with all processors: %+v", l)
	}
}
