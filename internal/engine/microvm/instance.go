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

// instance is the handle of one sandbox. All that it holds can be found again from the sandbox's
// record.
type instance struct {
	e   *Engine
	rec record
	dir string // its own directory

	freezing sync.Mutex // held while it is stopped or continued

	*lifetime.Life
}

func newInstance(e *Engine, rec record) *instance {
	dir := e.instanceDir(rec.ID)
	return &instance{e: e, rec: rec, dir: dir, Life: lifetime.New(dir, rec.Keeper)}
}

// watch waits for the end of the sandbox in the background, once.
func (b *instance) watch() { b.Watch(nil, b.ended) }

// ended records why the sandbox stopped.
func (b *instance) ended() {
	b.End(b.e.log, func() lifetime.Ending {
		kept, err := readRecord(b.dir)
		return lifetime.Ending{Err: err, Owner: kept.Keeper, Earlier: kept.Exit, Cause: b.cause, Write: func(exit engine.Exit) error {
			kept.Exit = &exit
			return kept.write(b.dir)
		}}
	})
}

// cause returns how the machine ended. A keeper that wrote nothing down was killed.
func (b *instance) cause() engine.Exit {
	told, known := b.told()
	exit := engine.Exit{Reason: told.Reason, Code: told.Code, At: told.At}
	if !known {
		exit.Reason = engine.ReasonCrashed
	}
	if exit.Reason == engine.ReasonCrashed {
		b.e.log.Warn("a virtual machine failed", "sandbox", b.rec.ID, "printed", told.Text)
	}
	return exit
}

// told returns how the machine ended, if its keeper was able to write it down.
func (b *instance) told() (exit keeper.Exit, known bool) {
	data, err := os.ReadFile(filepath.Join(b.dir, exitName))
	if err != nil {
		return exit, false
	}
	return exit, json.Unmarshal(data, &exit) == nil
}

// machine returns the process that is the machine, which may have ended.
func (b *instance) machine() (p process.Process, known bool) {
	data, err := os.ReadFile(filepath.Join(b.dir, processName))
	if err != nil {
		return p, false
	}
	return p, json.Unmarshal(data, &p) == nil
}

// Wait implements engine.Engine.
func (e *Engine) Wait(ctx context.Context, id string) (engine.Exit, error) {
	b, err := e.sandboxes.Find(id)
	if err != nil {
		return engine.Exit{}, err
	}
	b.watch()
	return b.Wait(ctx)
}

// Remove implements engine.Engine.
func (e *Engine) Remove(_ context.Context, id string) error { return e.sandboxes.Remove(id) }

// Destroy ends the machine and frees everything it held. It may be called at any stage of creation
// and any number of times.
func (b *instance) Destroy() error {
	if err := b.BeginRemoval(); err != nil {
		return err
	}
	// In version 1, not even SIGKILL ends a frozen process. The kernel ends the machine with its
	// keeper, some time later.
	errs := []error{b.rec.Group.Freeze(false), b.rec.Keeper.Kill(lifetime.Patience)}
	if m, known := b.machine(); known {
		errs = append(errs, m.Kill(lifetime.Patience))
	}
	b.AwaitReaped()
	b.ended()
	if b.e.groups != nil {
		errs = append(errs, b.e.groups.RemoveNamed(groupName(b.rec.ID)))
	}
	// The directory comes last: as long as it exists, List names the sandbox.
	if errors.Join(errs...) == nil {
		errs = append(errs, sandboxdir.Remove(b.dir))
	}
	return errors.Join(errs...)
}
