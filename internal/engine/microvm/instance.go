package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/lifetime"
	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/engine/microvm/keeper"
)

// instance is the handle of one sandbox. Its content can be restored from the sandbox's
// record.
type instance struct {
	e   *Engine
	rec record
	dir string // the sandbox's directory

	freezing sync.Mutex // held while the sandbox is frozen or thawed

	*lifetime.Life
}

func newInstance(e *Engine, rec record, dir string) *instance {
	return &instance{e: e, rec: rec, dir: dir, Life: lifetime.New(dir, rec.Keeper)}
}

// watch waits for the end of the sandbox in the background, once.
func (b *instance) watch() { b.Watch(nil, b.ended) }

// ended records why the sandbox stopped.
func (b *instance) ended() {
	b.End(b.e.log, func() lifetime.Ending {
		stored, err := readRecord(b.dir)
		return lifetime.Ending{Err: err, Owner: stored.Keeper, Earlier: stored.Exit, Cause: b.cause, Write: func(exit engine.Exit) error {
			stored.Exit = &exit
			return stored.write(b.dir)
		}}
	})
}

// cause returns how the machine ended. A keeper that recorded nothing was killed.
func (b *instance) cause() engine.Exit {
	recorded, known := b.recordedExit()
	exit := engine.Exit{Reason: recorded.Reason, Code: recorded.Code, At: recorded.At}
	if !known {
		exit.Reason = engine.ReasonCrashed
	}
	if exit.Reason == engine.ReasonCrashed {
		b.e.log.Warn("a virtual machine failed", "sandbox", b.rec.ID, "printed", recorded.Text)
	}
	return exit
}

// recordedExit returns how the machine ended, if its keeper recorded it.
func (b *instance) recordedExit() (exit keeper.Exit, known bool) {
	data, err := os.ReadFile(filepath.Join(b.dir, exitName))
	if err != nil {
		return exit, false
	}
	return exit, json.Unmarshal(data, &exit) == nil
}

// machine returns the process that runs the machine. It may have ended.
func (b *instance) machine() (p process.Process, known bool) {
	data, err := os.ReadFile(filepath.Join(b.dir, processName))
	if err != nil {
		return p, false
	}
	return p, json.Unmarshal(data, &p) == nil
}

// Wait implements engine.Engine. If another process replaces the sandbox, it waits for the
// replacement.
func (e *Engine) Wait(ctx context.Context, id string) (engine.Exit, error) {
	var previous *instance
	for {
		b, err := e.sandboxes.Find(id)
		if err != nil {
			return engine.Exit{}, err
		}
		b.watch()
		exit, err := b.Wait(ctx)
		if err != nil || !b.Replaced() || b == previous {
			return exit, err
		}
		previous = b
	}
}

// Remove implements engine.Engine.
func (e *Engine) Remove(_ context.Context, id string) error { return e.sandboxes.Remove(id) }

// Destroy ends the machine and frees all its resources. It may be called at any stage of creation,
// and repeatedly.
func (b *instance) Destroy() error {
	if err := b.BeginRemoval(); err != nil {
		return err
	}
	// In version 1, not even SIGKILL ends a frozen process. After the end of the keeper,
	// the kernel also ends the machine, but with a delay.
	errs := []error{b.rec.Group.Freeze(false), b.rec.Keeper.Kill(lifetime.Patience)}
	if m, known := b.machine(); known {
		errs = append(errs, m.Kill(lifetime.Patience))
	}
	b.AwaitReaped()
	b.ended()
	if b.e.groups != nil {
		errs = append(errs, b.e.groups.RemoveNamed(groupName(b.rec.Name)))
	}
	// The directory is removed last, because List finds the sandbox by it.
	if errors.Join(errs...) == nil {
		errs = append(errs, sandboxdir.Remove(b.dir))
	}
	return errors.Join(errs...)
}
