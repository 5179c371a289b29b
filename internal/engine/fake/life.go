package fake

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// Create makes the directory, serves the guest and waits for its answer.
func (e *Engine) Create(ctx context.Context, spec engine.Spec) error {
	if !idPattern.MatchString(spec.ID) {
		return fault.Newf(fault.Invalid, "id_invalid", "the ID %q is not 1 to 40 characters of a-z and 0-9", spec.ID)
	}
	if err := e.reach(ctx, CreateBegin, spec.ID); err != nil {
		return err
	}
	return e.create(ctx, spec, "")
}

// create creates a sandbox, from saved memory unless dir is "".
func (e *Engine) create(ctx context.Context, spec engine.Spec, dir string) error {
	if spec.Events != nil && !e.options.programs {
		return fault.New(fault.Unsupported, "events_unsupported", "this fake runs no programs, so it has no events")
	}
	if err := spec.Egress.Check(e.Info().Egress); err != nil {
		return err
	}
	if err := checkImage(spec.Image, e.Info().Images); err != nil {
		return fmt.Errorf("create %s: %w", spec.ID, err)
	}
	if err := checkRoot(spec.Image.View().Dir); err != nil {
		return fmt.Errorf("create %s: %w", spec.ID, err)
	}
	if err := os.Mkdir(e.dir(spec.ID), 0o700); errors.Is(err, fs.ErrExist) {
		return fault.Newf(fault.Exists, "id_taken", "the ID %s is in use", spec.ID)
	} else if err != nil {
		return fmt.Errorf("create %s: %w", spec.ID, err)
	}
	err := e.boot(ctx, spec, dir)
	if err == nil {
		return nil
	}
	if b := e.take(spec.ID); b != nil {
		b.stop(engine.Exit{Reason: engine.ReasonKilled, At: time.Now()})
	}
	return errors.Join(err, os.RemoveAll(e.dir(spec.ID)))
}

// checkImage is like Image.Check, but accepts an empty image, because the fake does not use it.
func checkImage(image engine.Image, kinds []engine.ImageKind) error {
	if image.Equal(engine.Image{}) {
		return nil
	}
	return image.Check(kinds)
}

// checkRoot returns an error for a root that does not exist. "" is accepted.
func checkRoot(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", dir)
	}
	return err
}

// boot serves the guest of a new sandbox.
func (e *Engine) boot(ctx context.Context, spec engine.Spec, dir string) error {
	if err := e.reach(ctx, CreateDir, spec.ID); err != nil {
		return err
	}
	b, err := e.serve(spec, dir, nil)
	if err != nil {
		return fmt.Errorf("create %s: %w", spec.ID, err)
	}
	e.shared.mu.Lock()
	e.shared.instances[spec.ID] = b
	e.shared.mu.Unlock()
	if err := e.reach(ctx, CreateServe, spec.ID); err != nil {
		return err
	}
	if err := b.checkReady(ctx); err != nil {
		return fmt.Errorf("create %s: guest: %w", spec.ID, err)
	}
	return e.reach(ctx, CreateReady, spec.ID)
}

// reach is called at each step. It fails if the test wants so, or if the context has ended.
func (e *Engine) reach(ctx context.Context, step Step, id string) error {
	if err := e.options.Fault(step, id); err != nil {
		return fmt.Errorf("%s %s: %w", step, id, err)
	}
	return context.Cause(ctx)
}

// take removes a sandbox from the shared state, so that only one caller stops it.
func (e *Engine) take(id string) *instance {
	e.shared.mu.Lock()
	defer e.shared.mu.Unlock()
	b := e.shared.instances[id]
	delete(e.shared.instances, id)
	return b
}

// Remove stops a sandbox and removes its directory.
func (e *Engine) Remove(ctx context.Context, id string) error {
	if !idPattern.MatchString(id) {
		return nil // no sandbox can have this ID
	}
	if err := e.reach(ctx, RemoveBegin, id); err != nil {
		return err
	}
	if b := e.take(id); b != nil {
		b.stop(engine.Exit{Reason: engine.ReasonKilled, At: time.Now()})
	}
	if err := e.reach(ctx, RemoveStop, id); err != nil {
		return err
	}
	if err := os.RemoveAll(e.dir(id)); err != nil {
		return fmt.Errorf("remove %s: %w", id, err)
	}
	return e.reach(ctx, RemoveDir, id)
}

// Dial opens a stream to a port of the guest.
func (e *Engine) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, fault.Newf(fault.Invalid, "port_invalid", "port %d is not from 1 to 65535", port)
	}
	b := e.find(id)
	if b == nil || !b.running() {
		return nil, unknown(id)
	}
	return b.dial(ctx, port)
}

// Wait returns when the sandbox has stopped.
func (e *Engine) Wait(ctx context.Context, id string) (engine.Exit, error) {
	b := e.find(id)
	if b == nil {
		if e.hasDirectory(id) {
			// The sandbox ended together with the process that created it.
			return engine.Exit{Reason: engine.ReasonCrashed, At: time.Now()}, nil
		}
		return engine.Exit{}, unknown(id)
	}
	for {
		select {
		case <-b.done:
		case <-ctx.Done():
			return engine.Exit{}, context.Cause(ctx)
		}
		next := b.next.Load()
		if next == nil {
			return b.exit, nil
		}
		b = next // the sandbox continues in the instance that replaced this one
	}
}

// Stop ends a sandbox as if it ended itself, with a reason that the test chooses. The sandbox stays
// known until it is removed. Stop reports whether the sandbox ran.
func (e *Engine) Stop(id string, exit engine.Exit) bool {
	b := e.find(id)
	if b == nil {
		return false
	}
	return b.stop(exit)
}

// Lose makes a sandbox disappear without a trace, as a reboot does.
func (e *Engine) Lose(id string) error {
	if b := e.take(id); b != nil {
		b.stop(engine.Exit{Reason: engine.ReasonCrashed, At: time.Now()})
	}
	return os.RemoveAll(e.dir(id))
}

// Bounds returns the sandbox's limits, except those that the options ignore.
func (e *Engine) Bounds(_ context.Context, id string) (engine.Limits, error) {
	b := e.find(id)
	if b == nil || !b.running() {
		return engine.Limits{}, unknown(id)
	}
	bounds := b.limits
	for limit, value := range bounds.Fields() {
		if !slices.Contains(e.options.Enforces, limit) || slices.Contains(e.options.Ignores, limit) {
			*value = 0
		}
	}
	return bounds, nil
}

// Usage returns the size of the sandbox's directory, and fixed or computed values for the rest.
func (e *Engine) Usage(ctx context.Context, id string) (engine.Usage, error) {
	b := e.find(id)
	if b == nil || !b.running() {
		return engine.Usage{}, unknown(id)
	}
	now := time.Now()
	// The fake always uses half a CPU, so that tests can check rates.
	u := engine.Usage{At: now, CPUTime: now.Sub(b.created) / 2, PIDs: 1}
	if e.options.programs {
		u.MemoryBytes = b.state.size()
	}
	err := filepath.WalkDir(e.dir(id), func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		u.DiskInodes++
		if info.Mode().IsRegular() {
			u.DiskBytes += info.Size()
		}
		return ctx.Err()
	})
	if errors.Is(err, fs.ErrNotExist) {
		return engine.Usage{}, unknown(id)
	}
	return u, err
}
