package jail

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/lifetime"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
)

// instance is the handle of one sandbox. Its content can be restored from the sandbox's record.
type instance struct {
	e   *Engine
	rec record
	dir string // the sandbox's directory

	oom atomic.Bool // the memory limit was hit
	// observer records what programs do, if this process observes the sandbox.
	observer atomic.Pointer[observing]

	*lifetime.Life
}

func newInstance(e *Engine, rec record) *instance {
	dir := e.instanceDir(rec.ID)
	return &instance{e: e, rec: rec, dir: dir, Life: lifetime.New(dir, rec.Init)}
}

// watch waits for the end of the sandbox in the background, once.
func (b *instance) watch() { b.Watch(b.watchMemory, b.ended) }

// ended records why the sandbox stopped. It runs before the group is removed, because the group has
// the kernel's count of processes that were killed for lack of memory.
func (b *instance) ended() {
	if o := b.observer.Load(); o != nil {
		o.finish()
	}
	b.End(b.e.log, func() lifetime.Ending {
		stored, err := readRecord(b.dir)
		return lifetime.Ending{Err: err, Owner: stored.Init, Earlier: stored.Exit, Cause: b.cause, Write: func(exit engine.Exit) error {
			stored.Exit = &exit
			return stored.write(b.dir)
		}}
	})
}

// cause returns the reason why the sandbox ended.
func (b *instance) cause() engine.Exit {
	if b.oom.Load() || b.rec.Group != nil && b.rec.Group.OOMKills() > 0 {
		return engine.Exit{Reason: engine.ReasonOOM}
	}
	if status, exited := b.status(); exited {
		return engine.Exit{Reason: engine.ReasonExited, Code: status}
	}
	return engine.Exit{Reason: engine.ReasonCrashed}
}

// status returns the guest's exit status, if the guest ended by itself.
func (b *instance) status() (status int, exited bool) {
	data, err := os.ReadFile(filepath.Join(b.dir, exitName))
	if err != nil {
		return 0, false
	}
	status, err = strconv.Atoi(strings.TrimSpace(string(data)))
	return status, err == nil
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

// Destroy kills the sandbox's processes and frees all its resources. It may be called at any stage
// of creation, and repeatedly. When the first process ends, the kernel kills all others of its PID
// namespace, and the mounts disappear with the last of them.
func (b *instance) Destroy() error {
	if err := b.BeginRemoval(); err != nil {
		return err
	}
	// In version 1, not even SIGKILL ends a frozen process.
	errs := []error{b.rec.Group.Freeze(false), b.rec.Init.Kill(lifetime.Patience)}
	b.AwaitReaped()
	b.ended()
	if b.e.groups != nil {
		errs = append(errs, b.e.groups.RemoveNamed(b.e.groupName(b.rec.ID)))
	}
	if errors.Join(errs...) == nil {
		errs = append(errs, b.e.freeSlots(b.rec))
	}
	// The directory is removed last, because List finds the sandbox by it.
	if errors.Join(errs...) == nil {
		errs = append(errs, sandboxdir.Remove(b.dir))
	}
	return errors.Join(errs...)
}

// watchMemory kills the sandbox when it reaches its memory limit. Version 2 does that by itself.
// Version 1 kills only one process.
func (b *instance) watchMemory() (stop func()) {
	if b.rec.Group == nil {
		return func() {}
	}
	hit := func() {
		b.oom.Store(true)
		if err := b.rec.Init.Kill(lifetime.Patience); err != nil {
			b.e.log.Error("kill a sandbox that reached its memory limit", "sandbox", b.rec.ID, "err", err)
		}
	}
	stop, err := b.rec.Group.OnOOM(hit)
	if err != nil {
		b.e.log.Warn("at its memory limit, the sandbox will lose one process instead of ending", "sandbox", b.rec.ID, "err", err)
		return func() {}
	}
	return stop
}
