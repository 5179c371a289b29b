package lifetime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/cgroup"
	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/ids"
)

// Sandbox is an engine's handle of one sandbox. Its content can be restored from the sandbox's
// record.
type Sandbox interface {
	comparable
	Over() bool
	Owner() process.Process
	// Destroy ends the sandbox and frees all its resources. It may be called at any stage of
	// creation, and repeatedly.
	Destroy() error
}

// Table holds the sandboxes of one engine that this process knows. All processes share the record
// of each sandbox, in its own directory. It is safe for concurrent use.
type Table[S Sandbox] struct {
	Engine string // the engine's name
	Dir    string // with a directory for each sandbox
	Log    *slog.Logger
	Hint   string // what to do if a sandbox did not start
	// Load makes a handle from a sandbox's record. If the record cannot be read, it returns an
	// error and a handle that can destroy what an interrupted creation left.
	Load func(id string) (S, error)
	// Adopt prepares a handle that Find loaded.
	Adopt func(S) error

	mu    sync.Mutex
	known map[string]S
}

// get returns the known handle of a sandbox.
func (t *Table[S]) get(id string) (s S, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, known = t.known[id]
	return s, known
}

// put stores a handle. The caller holds the lock.
func (t *Table[S]) put(id string, s S) {
	if t.known == nil {
		t.known = map[string]S{}
	}
	t.known[id] = s
}

// forget removes a handle, unless there is a newer one.
func (t *Table[S]) forget(id string, s S) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known[id] == s {
		delete(t.known, id)
	}
}

// Create makes the directory of a new sandbox and calls start. If that fails, it destroys the
// sandbox.
func (t *Table[S]) Create(ctx context.Context, id string, s S, start func() error) error {
	if err := os.Mkdir(filepath.Join(t.Dir, id), 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fault.Newf(fault.Exists, "sandbox_exists", "sandbox %q exists", id)
		}
		return fmt.Errorf("create %s: %w", id, err)
	}
	if err := start(); err != nil {
		// The caller's context may have caused the failure, so the cleanup does not
		// depend on it.
		if destroyErr := s.Destroy(); destroyErr != nil {
			t.Log.Error("undo create", "sandbox", id, "err", destroyErr)
		}
		return t.Explain(ctx, id, err)
	}
	t.mu.Lock()
	t.put(id, s)
	t.mu.Unlock()
	return nil
}

// Put stores the handle of a sandbox that has replaced the one with its ID.
func (t *Table[S]) Put(id string, s S) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(id, s)
}

// Explain converts errors of a start that a user can resolve into faults.
func (t *Table[S]) Explain(ctx context.Context, id string, err error) error {
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
		return fault.Wrap(err, fault.Canceled, "canceled", "the caller canceled the request while the sandbox started")
	}
	failed := fault.Wrap(err, fault.Unavailable, "engine_failed", fmt.Sprintf("sandbox %s did not start: %v", id, err))
	if t.Hint != "" {
		failed = failed.WithHint(t.Hint)
	}
	return failed
}

// Find returns the handle of a sandbox that this or an earlier process created.
func (t *Table[S]) Find(id string) (none S, err error) {
	known, found := t.get(id)
	if found && !known.Over() {
		return known, nil
	}
	s, err := t.Load(id)
	switch {
	case found && (err != nil || s.Owner() == known.Owner()):
		return known, nil // no newer sandbox has this ID
	case errors.Is(err, fs.ErrNotExist) || !ids.ValidSandbox(id):
		return none, fault.Newf(fault.NotFound, "sandbox_not_found", "no sandbox %q", id)
	case err != nil:
		return none, fmt.Errorf("%s: sandbox %s: %w", t.Engine, id, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if newer, found := t.known[id]; found && newer != known {
		return newer, nil
	}
	if t.Adopt != nil {
		if err := t.Adopt(s); err != nil {
			return none, err
		}
	}
	t.put(id, s)
	return s, nil
}

// List returns the state of each sandbox. The function describe reads a record.
func (t *Table[S]) List(ctx context.Context, describe func(dir string) (created time.Time, running bool, err error)) ([]engine.Status, error) {
	list, err := sandboxdir.List(ctx, t.Dir, describe)
	if err != nil {
		return nil, fmt.Errorf("%s: list: %w", t.Engine, err)
	}
	return list, nil
}

// Remove destroys a sandbox that this or another process created.
func (t *Table[S]) Remove(id string) error {
	if !ids.ValidSandbox(id) {
		return nil
	}
	s, found := t.get(id)
	if !found || s.Over() {
		if _, err := os.Lstat(filepath.Join(t.Dir, id)); errors.Is(err, fs.ErrNotExist) {
			// A sandbox's directory is created first and removed last.
			t.forget(id, s)
			return nil
		}
		loaded, err := t.Load(id)
		if sandboxdir.Unreadable(err) {
			return fmt.Errorf("remove %s: %w", id, err)
		}
		if !found || loaded.Owner() != s.Owner() {
			s = loaded
		}
	}
	if err := s.Destroy(); err != nil {
		return fmt.Errorf("remove %s: %w", id, err)
	}
	t.forget(id, s)
	return nil
}

// Freeze stops the processes in a sandbox's control group, or lets them continue.
func Freeze(group *cgroup.Group, owner process.Process, id string, stop bool) error {
	err := group.Freeze(stop)
	switch {
	case err == nil:
		return nil
	case !owner.Alive():
		return engine.HasStopped(id, err)
	}
	return fmt.Errorf("freeze %s: %w", id, errors.Join(err, group.Freeze(false)))
}
