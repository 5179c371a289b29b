package microvm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// Create implements engine.Engine.
func (e *Engine) Create(ctx context.Context, spec engine.Spec) error {
	if err := e.check(&spec); err != nil {
		return err
	}
	if err := os.Mkdir(e.instanceDir(spec.ID), 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fault.Newf(fault.Exists, "sandbox_exists", "sandbox %q exists", spec.ID)
		}
		return fmt.Errorf("create %s: %w", spec.ID, err)
	}
	b := newInstance(e, record{ID: spec.ID, Created: time.Now(), Limits: spec.Limits})
	if err := b.make(ctx, spec); err != nil {
		// The caller's context may be what failed; the cleanup has its own deadline.
		if undone := b.destroy(); undone != nil {
			e.log.Error("undo create", "sandbox", spec.ID, "err", undone)
		}
		return e.explain(ctx, spec.ID, err)
	}
	e.mu.Lock()
	e.boxes[spec.ID] = b
	e.mu.Unlock()
	b.watch()
	return nil
}

// leastMemory is what a kernel, the guest and a small program need.
const leastMemory = 160 << 20

// check refuses what the engine cannot do, and fills the limits.
func (e *Engine) check(spec *engine.Spec) error {
	if err := spec.Check(e.Info()); err != nil {
		return err
	}
	if !path.IsAbs(spec.Image.Guest) || path.Clean(spec.Image.Guest) != spec.Image.Guest {
		return fault.Newf(fault.Invalid, "image_invalid", "the guest's path %q is not absolute", spec.Image.Guest)
	}
	if len(spec.StandIns) > 0 {
		return fault.New(fault.Unsupported, "state_unsupported", "the engine microvm restores no saved memory")
	}
	if spec.Boot.Files != nil {
		return fault.New(fault.Unsupported, "files_unsupported", "the engine microvm restores no saved files").
			WithHint("start the snapshot on the engine that took it: leave the engine out")
	}
	spec.Limits = spec.Limits.OrDefault()
	if spec.Limits.MemoryBytes < leastMemory {
		return fault.Newf(fault.Invalid, "memory_too_small", "a virtual machine needs at least %d MiB of memory", leastMemory>>20).
			WithHint("ask for more memory, or use another engine")
	}
	return nil
}

// processors is how many processors a machine has.
func processors(limits engine.Limits) int {
	return int(min(max((limits.MilliCPU+999)/1000, 1), int64(runtime.NumCPU())))
}

// explain turns the errors that a user can do something about into faults.
func (e *Engine) explain(ctx context.Context, id string, err error) error {
	if _, known := errors.AsType[*fault.Error](err); known {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(cause, err)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(err, fault.Timeout, "create_timeout", "the sandbox did not start in time")
	case errors.Is(err, context.Canceled):
		return fault.Wrap(err, fault.Canceled, "canceled", "the caller went away while the sandbox started")
	}
	return fault.Wrap(err, fault.Unavailable, "engine_failed", fmt.Sprintf("sandbox %s did not start: %v", id, err)).
		WithHint("crannog doctor lists what the engine microvm lacks here")
}
