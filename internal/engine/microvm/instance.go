package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/engine/microvm/keeper"
	"github.com/crannog/crannog/internal/ids"
)

// instance is the handle of one sandbox. All that it holds can be found again from the sandbox's
// record.
type instance struct {
	e   *Engine
	rec record
	dir string // its own directory

	watching sync.Once
	done     chan struct{} // closed when exit is set
	reaped   chan struct{} // closed when this process has reaped the keeper; nil if that is no child of it

	freezing sync.Mutex // held while it is stopped or continued

	mu      sync.Mutex
	exit    engine.Exit
	removed bool // Remove was called: the exit that follows is ours
}

func newInstance(e *Engine, rec record) *instance {
	return &instance{e: e, rec: rec, dir: e.instanceDir(rec.ID), done: make(chan struct{})}
}

// over reports whether the sandbox is known to have ended.
func (b *instance) over() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// reap takes the status of the keeper when it has ended.
func (b *instance) reap(cmd *exec.Cmd) {
	b.reaped = make(chan struct{})
	go func() {
		_ = cmd.Wait() // how the machine ended is in the sandbox's directory
		close(b.reaped)
	}()
}

// watch waits for the end of the sandbox in the background, once.
func (b *instance) watch() {
	b.watching.Do(func() {
		if !b.rec.Keeper.Alive() {
			b.ended()
			return
		}
		go func() {
			b.rec.Keeper.Await()
			b.ended()
		}()
	})
}

// ended records why the sandbox stopped.
func (b *instance) ended() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over() {
		return
	}
	kept, err := readRecord(b.dir)
	replaced := err == nil && kept.Keeper != b.rec.Keeper
	b.exit = engine.Exit{Reason: engine.ReasonCrashed, At: time.Now()}
	told, known := b.told()
	switch {
	case b.removed || replaced || errors.Is(err, fs.ErrNotExist) || b.beingRemoved():
		b.exit.Reason = engine.ReasonKilled
	case kept.Exit != nil:
		b.exit = *kept.Exit
	case known:
		b.exit = engine.Exit{Reason: told.Reason, Code: told.Code, At: told.At}
	}
	if b.exit.Reason == engine.ReasonCrashed {
		b.e.log.Warn("a virtual machine failed", "sandbox", b.rec.ID, "printed", told.Text)
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

func (b *instance) beingRemoved() bool {
	_, err := os.Lstat(filepath.Join(b.dir, removedName))
	return err == nil
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
			// A sandbox's directory is made first and goes last.
			e.forget(id, b)
			return nil
		}
		rec, err := readRecord(e.instanceDir(id))
		if sandboxdir.Unreadable(err) {
			return fmt.Errorf("remove %s: %w", id, err)
		}
		if rec.ID != id {
			rec = record{ID: id} // a creation that was cut short before it wrote a record
		}
		if b == nil || rec.Keeper != b.rec.Keeper {
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

// destroy ends the machine and frees everything it held. It may be called at any stage of creation
// and any number of times.
func (b *instance) destroy() error {
	b.mu.Lock()
	b.removed = true
	b.mu.Unlock()
	if err := os.WriteFile(filepath.Join(b.dir, removedName), nil, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// In version 1, not even SIGKILL ends a frozen process. The kernel ends the machine with its
	// keeper, some time later.
	errs := []error{b.rec.Group.Freeze(false), b.rec.Keeper.Kill(timeout)}
	if m, known := b.machine(); known {
		errs = append(errs, m.Kill(timeout))
	}
	if b.reaped != nil {
		<-b.reaped
	}
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
