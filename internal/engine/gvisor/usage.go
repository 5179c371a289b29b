package gvisor

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"gvisor.dev/gvisor/runsc/boot"

	"github.com/crannog/crannog/internal/engine"
)

// usage reads what the box uses from its group, or without one from its
// processes.
func (b *box) usage() engine.Usage {
	if b.rec.Group != nil {
		return b.rec.Group.Usage()
	}
	u := engine.Usage{At: time.Now(), MemoryBytes: b.programMemory()}
	for _, p := range b.processes() {
		u.CPUTime += cpuTime(p)
	}
	// The memory of the programs inside is gVisor's to tell: its pages are in
	// a file that is mapped here and there as they are used, and no process's
	// own figures hold all of it.
	for _, p := range []process{b.rec.Sentry, b.rec.Gofer} {
		u.MemoryBytes += proportionalMemory(p.PID)
	}
	return u
}

// usageTime bounds a question to a box that may be too busy to answer.
const usageTime = 5 * time.Second

// programMemory is what the programs and files in memory inside use.
func (b *box) programMemory() int64 {
	ctx, cancel := context.WithTimeout(context.Background(), usageTime)
	defer cancel()
	var out boot.EventOut
	if err := b.conns.call(ctx, boot.ContMgrEvent, &b.rec.Kernel, &out); err != nil {
		return 0
	}
	return int64(out.Event.Data.Memory.Usage.Usage)
}

// processes lists the box's host processes: gVisor's two and the stubs that
// carry the programs inside.
func (b *box) processes() []int {
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

func proportionalMemory(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
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

// memoryLook is how often a box without a group is looked at. A program can
// pass the limit for this long.
const memoryLook = 250 * time.Millisecond

// watchMemory ends the box when it holds more than its limit. It stands in
// for the kernel where no group can be made.
func (b *box) watchMemory() {
	tick := time.NewTicker(memoryLook)
	defer tick.Stop()
	for {
		select {
		case <-b.done:
			return
		case <-tick.C:
		}
		if b.usage().MemoryBytes <= b.rec.Limits.MemoryBytes {
			continue
		}
		b.mu.Lock()
		if b.rec.Exit == nil && !b.removed {
			b.rec.Exit = &engine.Exit{Reason: engine.ReasonOOM, At: time.Now()}
		}
		b.mu.Unlock()
		if err := b.rec.Sentry.kill(10 * time.Second); err != nil {
			b.e.log.Error("memory watcher", "sandbox", b.rec.ID, "err", err)
		}
		return
	}
}
