// Package lifetime owns the life of sandboxes that end with one process of the host, their owner:
// creation, the wait for the end, and removal, by any process that opened the state directory.
package lifetime

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
)

// Patience bounds how long the kernel may take to end a process.
const Patience = 10 * time.Second

// Life holds what this process knows about the life of one sandbox.
type Life struct {
	dir   string // the sandbox's directory
	owner process.Process

	watching sync.Once
	done     chan struct{} // closed when exit is set
	reaped   chan struct{} // closed when the owner was reaped; nil if it is not a child of this process

	mu       sync.Mutex
	exit     engine.Exit
	removed  bool // this process removes the sandbox and causes the exit
	replaced bool // another sandbox has the ID
}

// New returns the life of the sandbox with a directory. The owner is zero until it is started.
func New(dir string, owner process.Process) *Life {
	return &Life{dir: dir, owner: owner, done: make(chan struct{})}
}

// Owner returns the process with which the sandbox ends.
func (l *Life) Owner() process.Process { return l.owner }

// Start records the owner, a child of this process, and reaps it when it has ended.
func (l *Life) Start(cmd *exec.Cmd) (owner process.Process, err error) {
	l.reaped = make(chan struct{})
	go func() {
		_ = cmd.Wait() // the status is in the sandbox's directory
		close(l.reaped)
	}()
	l.owner, err = process.Identify(cmd.Process.Pid)
	return l.owner, err
}

// Reaped returns a channel that is closed when the owner was reaped. It is nil if the owner is not
// a child of this process.
func (l *Life) Reaped() <-chan struct{} { return l.reaped }

// Over reports whether the sandbox is known to have ended. Another process may have created one
// with the same ID since.
func (l *Life) Over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// Watch calls ended in the background, once, when the owner has ended. If the owner runs, it calls
// begin first unless that is nil, and the function that begin returns before ended.
func (l *Life) Watch(begin func() (stop func()), ended func()) {
	l.watching.Do(func() {
		if !l.owner.Alive() {
			ended()
			return
		}
		stop := func() {}
		if begin != nil {
			stop = begin()
		}
		go func() {
			l.owner.Await()
			stop()
			ended()
		}()
	})
}

// Replaced reports whether another sandbox with the same ID has replaced the sandbox. It is false
// until Wait returns.
func (l *Life) Replaced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.replaced
}

// Wait returns how the sandbox ended. Watch must have been called before.
func (l *Life) Wait(ctx context.Context) (engine.Exit, error) {
	select {
	case <-l.done:
		return l.exit, nil
	case <-ctx.Done():
		return engine.Exit{}, ctx.Err()
	}
}

// Ending describes a sandbox that has ended, from its record.
type Ending struct {
	Err     error                   // why the record cannot be read
	Owner   process.Process         // a different owner belongs to a newer sandbox
	Earlier *engine.Exit            // the exit, if a process has already recorded it
	Cause   func() engine.Exit      // returns why the sandbox ended
	Write   func(engine.Exit) error // records the exit
}

// End determines why the sandbox stopped and records it, once.
func (l *Life) End(log *slog.Logger, read func() Ending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Over() {
		return
	}
	// The order matters: the removal deletes the record before the file that shows it.
	removal := l.beingRemoved()
	e := read()
	l.replaced = e.Err == nil && e.Owner != l.owner
	switch {
	case l.removed || l.replaced || errors.Is(e.Err, fs.ErrNotExist) || removal:
		l.exit = engine.Exit{Reason: engine.ReasonKilled}
	case e.Earlier != nil:
		l.exit = *e.Earlier
	default:
		l.exit = e.Cause()
	}
	if l.exit.At.IsZero() {
		l.exit.At = time.Now()
	}
	if e.Err == nil && l.exit.Reason != engine.ReasonKilled && e.Earlier == nil {
		if err := e.Write(l.exit); err != nil && !errors.Is(err, fs.ErrNotExist) {
			log.Error("record exit", "sandbox", filepath.Base(l.dir), "err", err)
		}
	}
	close(l.done)
}

// beingRemoved reports whether a process removes the sandbox.
func (l *Life) beingRemoved() bool {
	_, err := os.Lstat(filepath.Join(l.dir, sandboxdir.RemovalName))
	return err == nil
}

// BeginRemoval records, for all processes, that a removal causes the coming exit.
func (l *Life) BeginRemoval() error {
	l.mu.Lock()
	l.removed = true
	l.mu.Unlock()
	err := os.WriteFile(filepath.Join(l.dir, sandboxdir.RemovalName), nil, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// AwaitReaped returns when the owner was reaped, if it is a child of this process.
func (l *Life) AwaitReaped() {
	if l.reaped != nil {
		<-l.reaped
	}
}
