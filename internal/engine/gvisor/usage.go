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

// usage reads the sandbox's usage from its group or, without one, from its processes.
func (b *instance) usage() engine.Usage {
	if b.rec.Group != nil {
		return b.rec.Group.Usage()
	}
	u := engine.Usage{At: time.Now()}
	for _, p := range b.processes() {
		u.CPUTime += cpuTime(p)
	}
	u.MemoryBytes, _ = b.memory() // the part that could be read
	return u
}

// bounds reads the limits that the host enforces: those of the sandbox's group or, without a group,
// the processors on which its kernel may run. The sandbox's own kernel enforces all other limits,
// and shows them to programs.
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

// memory returns the memory use of a sandbox without a group. If it also returns an error, the
// memory of programs in the sandbox is not included.
func (b *instance) memory() (int64, error) {
	// Only gVisor can report the memory of programs. Their pages are in a file of which each
	// process maps only the parts that it uses, so no figures of a process include all of it.
	total, err := b.programMemory()
	for _, p := range b.ownProcesses() {
		total += privateMemory(p.PID)
	}
	return total, err
}

// usageTime bounds the request for the memory of programs: a sandbox may be too busy to answer.
const usageTime = 5 * time.Second

// programMemory returns the memory of programs and of files in memory in the sandbox.
func (b *instance) programMemory() (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), usageTime)
	defer cancel()
	var out boot.EventOut
	if err := b.conns.call(ctx, boot.ContMgrEvent, &b.rec.Kernel, &out); err != nil {
		return 0, fmt.Errorf("memory of %s: %w", b.rec.Kernel, err)
	}
	return int64(out.Event.Data.Memory.Usage.Usage), nil
}

// ownProcesses returns gVisor's kernel and file server. A sandbox with a packed root has no file
// server.
func (b *instance) ownProcesses() []process.Process {
	if b.rec.Gofer.PID == 0 {
		return []process.Process{b.rec.Sentry}
	}
	return []process.Process{b.rec.Sentry, b.rec.Gofer}
}

// processes lists the sandbox's host processes: gVisor's kernel and file server, and the stubs that
// run the programs.
func (b *instance) processes() []int {
	var pids, queue []int
	for _, p := range b.ownProcesses() {
		queue = append(queue, p.PID)
	}
	for ; len(queue) > 0; queue = queue[1:] {
		pid := queue[0]
		pids = append(pids, pid)
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
	return pids
}

// privateMemory returns a process's share of memory, without its mappings of the file with the
// memory of programs.
func privateMemory(pid int) (bytes int64) {
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

// clockTick is the unit of CPU time in /proc, which is 100 Hz on every Linux system that Go
// supports.
const clockTick = 10 * time.Millisecond

// cpuTime returns the processor time that a process has used, or 0 if it has ended.
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
