package microvm

import (
	"context"
	"path"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// Create implements engine.Engine.
func (e *Engine) Create(ctx context.Context, spec engine.Spec) error {
	if err := e.check(&spec); err != nil {
		return err
	}
	return e.create(ctx, spec, nil)
}

// create starts the sandbox, from a saved state unless that is nil.
func (e *Engine) create(ctx context.Context, spec engine.Spec, from *state) error {
	b := newInstance(e, record{ID: spec.ID, Name: spec.ID, Created: time.Now(), Limits: spec.Limits}, e.instanceDir(spec.ID))
	if err := e.sandboxes.Create(ctx, spec.ID, b, func() error { return b.make(ctx, spec, from) }); err != nil {
		return err
	}
	b.watch()
	return nil
}

// minMemory is the memory that a kernel, the guest and a small program need.
const minMemory = 160 << 20

// check refuses what the engine cannot do, and fills in the default limits.
func (e *Engine) check(spec *engine.Spec) error {
	if err := spec.Check(e.Info()); err != nil {
		return err
	}
	if !path.IsAbs(spec.Image.Guest) || path.Clean(spec.Image.Guest) != spec.Image.Guest {
		return fault.Newf(fault.Invalid, "image_invalid", "the guest's path %q is not absolute", spec.Image.Guest)
	}
	if len(spec.StandIns) > 0 {
		return fault.New(fault.Unsupported, "state_unsupported", "the engine microvm shows no files of the host, so a saved memory refers to none")
	}
	if spec.Boot.Files != nil {
		return fault.New(fault.Unsupported, "files_unsupported", "the engine microvm restores no saved files").
			WithHint("start the snapshot on the engine that took it: leave the engine out")
	}
	spec.Limits = spec.Limits.OrDefault()
	if spec.Limits.MemoryBytes < minMemory {
		return fault.Newf(fault.Invalid, "memory_too_small", "a virtual machine needs at least %d MiB of memory", minMemory>>20).
			WithHint("request more memory, or use another engine")
	}
	return nil
}
