package gvisor

import (
	"time"

	"github.com/crannog/crannog/internal/engine"
)

// memoryInterval is the interval at which the memory of a sandbox without a group is checked. For
// this long, a program can exceed the limit.
const memoryInterval = 250 * time.Millisecond

// maxSilence is how long the kernel of such a sandbox may fail to report its memory. It is longer
// than the report takes for a large memory, and longer than the kernel takes to load a saved state.
const maxSilence = time.Minute

// boundMemory starts the memory watch of a sandbox without a group, once. It must be called before
// programs can run in the sandbox for long.
func (b *instance) boundMemory() {
	if b.rec.Group == nil {
		b.bounding.Do(func() {
			b.lowerPriority()
			go b.watchMemory(b.rec.ID, maxSilence)
		})
	}
}

// watchMemory kills the sandbox when it exceeds its limit, or does not report its use for the time
// silence. It replaces the control group, which cannot be created on this host.
func (b *instance) watchMemory(id string, silence time.Duration) {
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	for reported := time.Now(); ; {
		select {
		case <-b.done:
			return
		case <-tick.C:
		}
		used, err := b.memory()
		if err == nil {
			reported = time.Now()
		}
		silent := time.Since(reported) > silence
		if used <= b.rec.Limits.MemoryBytes && !silent {
			continue
		}
		if silent {
			b.e.log.Warn("killing a sandbox that does not report its memory use", "sandbox", id, "err", err)
		}
		b.mu.Lock()
		if b.rec.Exit == nil && !b.removed {
			b.rec.Exit = &engine.Exit{Reason: engine.ReasonOOM, At: time.Now()}
		}
		b.mu.Unlock()
		if err := b.rec.Sentry.Kill(10 * time.Second); err != nil {
			b.e.log.Error("memory watcher", "sandbox", id, "err", err)
		}
		return
	}
}
