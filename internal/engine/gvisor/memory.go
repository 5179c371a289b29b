package gvisor

import (
	"time"

	"github.com/crannog/crannog/internal/engine"
)

// memoryLook is how often the memory of a sandbox without a group is checked. A program can exceed
// the limit for this long.
const memoryLook = 250 * time.Millisecond

// mostSilence is how long the kernel of such a sandbox may fail to report its memory. It is longer
// than the report takes for a large memory, and longer than the kernel takes to load a saved state.
const mostSilence = time.Minute

// boundMemory begins to watch the memory of a sandbox without a group, once. It must be called
// before anything runs inside for long.
func (b *instance) boundMemory() {
	if b.rec.Group == nil {
		b.bounding.Do(func() {
			b.setBehind()
			go b.watchMemory(b.rec.ID, mostSilence)
		})
	}
}

// watchMemory ends the sandbox when it holds more than its limit, or does not report how much it
// holds. It does the work of the host's kernel where no group can be made.
func (b *instance) watchMemory(id string, silence time.Duration) {
	tick := time.NewTicker(memoryLook)
	defer tick.Stop()
	for told := time.Now(); ; {
		select {
		case <-b.done:
			return
		case <-tick.C:
		}
		held, err := b.memory()
		if err == nil {
			told = time.Now()
		}
		silent := time.Since(told) > silence
		if held <= b.rec.Limits.MemoryBytes && !silent {
			continue
		}
		if silent {
			b.e.log.Warn("a sandbox that does not tell how much memory it holds is ended", "sandbox", id, "err", err)
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
