package gvisor

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/process"
)

// usage reads what the sandbox uses from its group, or without one from its
// processes.
func (b *instance) usage() engine.Usage {
	if b.rec.Group != nil {
		return b.rec.Group.Usage()
	}
	u := engine.Usage{At: time.Now()}
	for _, p := range b.processes() {
		u.CPUTime += cpuTime(p)
	}
	u.MemoryBytes, _ = b.memory() // what is known so far
	return u
}

// bounds reads the limits that hold on the host: of the sandbox's group, or without one
// the processors on which its kernel may run. All others are bounded by the kernel
// inside, which shows them.
func (b *instance) bounds() engine.Limits {
	if b.rec.Group != nil {
		return b.rec.Group.Bounds()
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(b.rec.Sentry.PID, &set); err != nil {
		return engine.Limits{}
	}
	return engine.Limits{MilliCPU: int64(set.Count()) * 1000}
}

// memory is what a sandbox without a group holds. With an error it is only what its processes hold,
// without the programs inside.
func (b *instance) memory() (int64, error) {
	// Only gVisor can report the memory of the programs inside: its pages are in a file that is
	// mapped here and there as they are used, and no process's own figures hold all of it.
	total, err := b.programMemory()
	for _, p := range []process.Process{b.rec.Sentry, b.rec.Gofer} {
		total += ownMemory(p.PID)
	}
	return total, err
}

// usageTime bounds a request to a sandbox that may be too busy to answer.
const usageTime = 5 * time.Second

// programMemory is what the programs and files in memory inside use.
func (b *instance) programMemory() (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), usageTime)
	defer cancel()
	var out boot.EventOut
	if err := b.conns.call(ctx, boot.ContMgrEvent, &b.rec.Kernel, &out); err != nil {
		return 0, fmt.Errorf("memory of %s: %w", b.rec.Kernel, err)
	}
	return int64(out.Event.Data.Memory.Usage.Usage), nil
}

// processes lists the sandbox's host processes: gVisor's two and the stubs that
// carry the programs inside.
func (b *instance) processes() []int {
	var out []int
	for queue := []int{b.rec.Sentry.PID, b.rec.Gofer.PID}; len(queue) > 0; queue = queue[1:] {
		pid := queue[0]
		out = append(out, pid)
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		for _, task := range tasks {
			data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
			for child := range strings.FieldsSeq(string(data)) {
				if n, err := strconv.Atoi(child); err == nil {
					queue = append(queue, n)
				}
			}
		}
	}
	return out
}

// ownMemory is a process's share of memory, without what it maps of the file that gVisor reports.
func ownMemory(pid int) (bytes int64) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kb, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "Pss:":
			bytes += kb << 10
		case "Pss_Shmem:":
			bytes -= kb << 10
		}
	}
	return bytes
}

// clockTick is what /proc counts CPU time in; it is 100 on every Linux that
// Go runs on.
const clockTick = 10 * time.Millisecond

func cpuTime(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	i := strings.LastIndexByte(string(data), ')')
	fields := strings.Fields(string(data)[i+1:])
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick
}
