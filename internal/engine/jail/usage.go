package jail

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/lifetime"
	"github.com/crannog/crannog/internal/engine/linux/process"
)

// Usage implements engine.Meter.
func (e *Engine) Usage(_ context.Context, id string) (engine.Usage, error) {
	b, err := e.sandboxes.Find(id)
	if err != nil {
		return engine.Usage{}, err
	}
	var u engine.Usage
	if b.rec.Group != nil {
		u = b.rec.Group.Usage()
	} else {
		u = b.processUsage()
	}
	// The sandbox's root is on the tmpfs that receives all its writes.
	var stat unix.Statfs_t
	if unix.Statfs(fmt.Sprintf("/proc/%d/root", b.rec.Init.PID), &stat) == nil && b.rec.Init.Alive() {
		u.DiskBytes = int64(stat.Blocks-stat.Bfree) * stat.Bsize
		u.DiskInodes = int64(stat.Files - stat.Ffree)
	}
	return u, nil
}

// processUsage adds up the sandbox's processes if no group counts them.
func (b *instance) processUsage() engine.Usage {
	u := engine.Usage{At: time.Now()}
	for queue := []int{b.rec.Init.PID}; len(queue) > 0; queue = queue[1:] {
		u.PIDs++
		u.CPUTime += process.CPUTime(queue[0])
		u.MemoryBytes += process.Memory(queue[0])
		queue = append(queue, children(queue[0])...)
	}
	return u
}

// children lists the children of a process. All processes of a sandbox descend from its first
// process.
func children(pid int) (list []int) {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)) // an ended process has none
	for _, task := range tasks {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		for child := range strings.FieldsSeq(string(data)) {
			if n, err := strconv.Atoi(child); err == nil {
				list = append(list, n)
			}
		}
	}
	return list
}

// Bounds implements engine.Meter. The limits of the disk and of processes are not among them,
// because programs in the sandbox can read those themselves.
func (e *Engine) Bounds(_ context.Context, id string) (engine.Limits, error) {
	b, err := e.sandboxes.Find(id)
	if err != nil {
		return engine.Limits{}, err
	}
	if b.rec.Group == nil {
		return engine.Limits{}, nil
	}
	return b.rec.Group.Bounds(), nil
}

// Freeze implements engine.Freezer.
func (f freezing) Freeze(ctx context.Context, id string) error { return f.freeze(ctx, id, true) }

// Thaw implements engine.Freezer.
func (f freezing) Thaw(ctx context.Context, id string) error { return f.freeze(ctx, id, false) }

// freeze freezes or thaws a sandbox.
func (f freezing) freeze(ctx context.Context, id string, stop bool) error {
	return f.exclusively(ctx, id, func(b *instance) error {
		return lifetime.Freeze(b.rec.Group, b.rec.Init, id, stop)
	})
}
