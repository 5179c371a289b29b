package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/relay"
	"github.com/crannog/crannog/internal/ids"
)

// instance is the handle of one sandbox. It can be created again from the sandbox's record.
type instance struct {
	e   *Engine
	rec record
	dir string // the sandbox's directory

	watching  sync.Once     // starts watch
	bounding  sync.Once     // starts the memory watch
	guestless chan struct{} // closed when the guest has ended
	done      chan struct{} // closed when exit is set

	mu      sync.Mutex
	exit    engine.Exit
	removed bool // Remove was called and caused the exit
	// replaced is set if another process has replaced the sandbox. It is valid once done is closed.
	replaced bool

	restored atomic.Bool // set when no restore is in progress any more, or there was none

	conns   controlConns
	channel *relay.Channel // nil until its first use
	opening chan struct{}  // full while the channel is being opened
}

// newInstance returns the handle of a sandbox with a record.
func newInstance(e *Engine, rec record, dir string) *instance {
	return &instance{
		e: e, rec: rec, dir: dir,
		guestless: make(chan struct{}), done: make(chan struct{}), opening: make(chan struct{}, 1),
		conns: controlConns{socket: rec.Socket},
	}
}

// Remove implements engine.Engine.
func (e *Engine) Remove(_ context.Context, id string) error {
	if !ids.ValidSandbox(id) {
		return nil
	}
	b, err := e.find(id)
	if fault.KindOf(err) == fault.NotFound {
		// A sandbox's directory is created first and removed last, so without one there is nothing
		// to remove.
		if _, err := os.Lstat(e.instanceDir(id)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		// There is no record, because the creation was interrupted before it wrote one.
		b = newInstance(e, record{ID: id, Kernel: id}, e.instanceDir(id))
	} else if err != nil {
		return err
	}
	if err := b.destroy(); err != nil {
		return fmt.Errorf("remove %s: %w", id, err)
	}
	e.mu.Lock()
	if e.instances[id] == b {
		delete(e.instances, id)
	}
	e.mu.Unlock()
	return nil
}

// destroy kills the sandbox's processes and frees all its resources. It may be called at any stage
// of creation, and repeatedly.
func (b *instance) destroy() error {
	b.mu.Lock()
	b.removed = true
	b.mu.Unlock()
	const timeout = 10 * time.Second
	goferErr := make(chan error, 1)
	go func() { goferErr <- b.rec.Gofer.Kill(timeout) }() // in parallel with the kernel
	errs := []error{b.rec.Sentry.Kill(timeout), <-goferErr}
	if b.rec.Sentry.PID == 0 {
		errs = append(errs, b.killUntracked())
	}
	b.ended(nil)
	if b.rec.Group != nil {
		errs = append(errs, b.rec.Group.Remove())
	} else if b.e.groups != nil {
		errs = append(errs, b.e.groups.RemoveNamed(b.rec.Kernel))
	}
	errs = append(errs, b.removeRuntimeFiles())
	// The directory is removed last, because List finds the sandbox by it.
	if errors.Join(errs...) == nil {
		errs = append(errs, sandboxdir.Remove(b.dir))
	}
	return errors.Join(errs...)
}

// removeRuntimeFiles deletes gVisor's files for the sandbox outside its directory: state, lock and
// control socket. Their names contain rec.Kernel, gVisor's name of the sandbox.
func (b *instance) removeRuntimeFiles() error {
	var errs []error
	root := b.e.runtimeRoot()
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		if name == "runsc-"+b.rec.Kernel+".sock" || strings.HasPrefix(name, b.rec.Kernel+"_") {
			errs = append(errs, os.RemoveAll(filepath.Join(root, name)))
		}
	}
	if b.rec.Socket != "" {
		if err := os.Remove(b.rec.Socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
