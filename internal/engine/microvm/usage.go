package microvm

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/lifetime"
	"github.com/crannog/crannog/internal/engine/linux/process"
)

// Usage implements engine.Meter. Memory and processor time are those of the machine and its keeper
// on the host, because the programs in the machine cannot be counted from outside.
func (e *Engine) Usage(_ context.Context, id string) (engine.Usage, error) {
	b, err := e.sandboxes.Find(id)
	if err != nil {
		return engine.Usage{}, err
	}
	if !b.rec.Keeper.Alive() {
		return engine.Usage{}, engine.HasStopped(id, nil)
	}
	if b.rec.Group != nil {
		return b.rec.Group.Usage(), nil
	}
	u := engine.Usage{At: time.Now()}
	if m, known := b.machine(); known {
		for _, p := range []process.Process{b.rec.Keeper, m} {
			u.CPUTime += process.CPUTime(p.PID)
			u.MemoryBytes += process.Memory(p.PID)
		}
	}
	return u, nil
}

// Bounds implements engine.Meter. The memory of a machine is fixed when it starts.
func (e *Engine) Bounds(_ context.Context, id string) (engine.Limits, error) {
	b, err := e.sandboxes.Find(id)
	if err != nil {
		return engine.Limits{}, err
	}
	var limits engine.Limits
	if b.rec.Group != nil {
		limits = b.rec.Group.Bounds()
	}
	limits.MemoryBytes = b.rec.Limits.MemoryBytes
	return limits, nil
}

// Freeze implements engine.Freezer.
func (f freezing) Freeze(ctx context.Context, id string) error { return f.freeze(ctx, id, true) }

// Thaw implements engine.Freezer.
func (f freezing) Thaw(ctx context.Context, id string) error { return f.freeze(ctx, id, false) }

// freeze freezes or thaws the processes of the machine and of its keeper.
func (f freezing) freeze(_ context.Context, id string, stop bool) error {
	b, err := f.sandboxes.Find(id)
	if err != nil {
		return err
	}
	if !b.rec.Keeper.Alive() {
		return engine.HasStopped(id, nil)
	}
	b.freezing.Lock()
	defer b.freezing.Unlock()
	return lifetime.Freeze(b.rec.Group, b.rec.Keeper, id, stop)
}
