package jail

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/ids"
)

// instance is the handle of one sandbox. Its content can be restored from the sandbox's record.
type instance struct {
	e   *Engine
	rec record
	dir string // the sandbox's directory

	watching sync.Once
	done     chan struct{} // closed when exit is set
	reaped   chan struct{} // closed when the first process was reaped; nil if it is not a child of this process

	mu      sync.Mutex
	exit    engine.Exit
	removed bool // Remove was called and caused the exit
	oom     bool // the memory limit was hit
}

func newInstance(e *Engine, rec record) *instance {
	return &instance{e: e, rec: rec, dir: e.instanceDir(rec.ID), done: make(chan struct{})}
}

// over reports whether the sandbox is known to have ended. Another process may have created one
// with the same ID since.
func (b *instance) over() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// reap takes the status of the first process when it has ended.
func (b *instance) reap(cmd *exec.Cmd) {
	b.reaped = make(chan struct{})
	go func() {
		_ = cmd.Wait() // the status is in the sandbox's directory
		close(b.reaped)
	}()
}

// watch waits for the end of the sandbox in the background, once.
func (b *instance) watch() {
	b.watching.Do(func() {
		if !b.rec.Init.Alive() {
			b.ended()
			return
		}
		stop := b.watchMemory()
		go func() {
			b.rec.Init.Await()
			stop()
			b.ended()
		}()
	})
}

// ended records why the sandbox stopped. It runs before the group is removed, because the group has
// the kernel's count of processes that were killed for lack of memory.
func (b *instance) ended() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over() {
		return
	}
	kept, err := readRecord(b.dir)
	replaced := err == nil && kept.Init != b.rec.Init
	b.exit = engine.Exit{Reason: engine.ReasonCrashed, At: time.Now()}
	status, exited := b.status()
	switch {
	case b.removed || replaced || errors.Is(err, fs.ErrNotExist) || b.beingRemoved():
		b.exit.Reason = engine.ReasonKilled
	case kept.Exit != nil:
		b.exit = *kept.Exit
	case b.oom || b.rec.Group != nil && b.rec.Group.OOMKills() > 0:
		b.exit.Reason = engine.ReasonOOM
	case exited:
		b.exit.Reason, b.exit.Code = engine.ReasonExited, status
	}
	if err == nil && b.exit.Reason != engine.ReasonKilled && kept.Exit == nil {
		exit := b.exit
		kept.Exit = &exit
		if err := kept.write(b.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.e.log.Error("record exit", "sandbox", b.rec.ID, "err", err)
		}
	}
	close(b.done)
}

// removedName is a file that exists while a process removes the sandbox.
const removedName = "removed"

func (b *instance) beingRemoved() bool {
	_, err := os.Lstat(filepath.Join(b.dir, removedName))
	return err == nil
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
	b, err := e.find(id)
	if err != nil {
		return engine.Exit{}, err
	}
	b.watch()
	select {
	case <-b.done:
		return b.exit, nil
	case <-ctx.Done():
		return engine.Exit{}, ctx.Err()
	}
}

// Remove implements engine.Engine.
func (e *Engine) Remove(_ context.Context, id string) error {
	if !ids.ValidSandbox(id) {
		return nil
	}
	e.mu.Lock()
	b := e.boxes[id]
	e.mu.Unlock()
	if b == nil || b.over() {
		if _, err := os.Lstat(e.instanceDir(id)); errors.Is(err, fs.ErrNotExist) {
			// A sandbox's directory is created first and removed last.
			e.forget(id, b)
			return nil
		}
		rec, err := readRecord(e.instanceDir(id))
		if sandboxdir.Unreadable(err) {
			return fmt.Errorf("remove %s: %w", id, err)
		}
		if rec.ID != id {
			// There is no record, because the creation was interrupted before it wrote one.
			rec = record{ID: id, Slot: -1}
		}
		if b == nil || rec.Init != b.rec.Init {
			b = newInstance(e, rec)
		}
	}
	if err := b.destroy(); err != nil {
		return fmt.Errorf("remove %s: %w", id, err)
	}
	e.forget(id, b)
	return nil
}

func (e *Engine) forget(id string, b *instance) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.boxes[id] == b {
		delete(e.boxes, id)
	}
}

// timeout bounds how long the kernel may take to end a process.
const timeout = 10 * time.Second

// destroy kills the sandbox's processes and frees all its resources. It may be called at any stage
// of creation, and repeatedly. When the first process ends, the kernel kills all others of its PID
// namespace, and the mounts disappear with the last of them.
func (b *instance) destroy() error {
	b.mu.Lock()
	b.removed = true
	b.mu.Unlock()
	if err := os.WriteFile(filepath.Join(b.dir, removedName), nil, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// In version 1, not even SIGKILL ends a frozen process.
	errs := []error{b.rec.Group.Freeze(false), b.rec.Init.Kill(timeout)}
	if b.reaped != nil {
		<-b.reaped
	}
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
		b.mu.Lock()
		b.oom = true
		b.mu.Unlock()
		if err := b.rec.Init.Kill(timeout); err != nil {
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
