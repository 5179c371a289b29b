package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
)

// frozenName is the file in a frozen sandbox's directory. gVisor counts how often a kernel was
// paused and crashes on one resume too many, so each pause is written down for later processes.
// After a crash between the pause and the file, the sandbox stands still until it is removed.
const frozenName = "frozen"

// Freeze implements engine.Freezer.
func (e *Engine) Freeze(ctx context.Context, id string) error {
	return e.exclusively(ctx, id, func(b *instance, mark string) error {
		if b.frozen() {
			return nil
		}
		if err := b.standStill(pausePatience); err != nil {
			return fmt.Errorf("freeze %s: %w", id, err)
		}
		f, err := os.OpenFile(mark, os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return errors.Join(fmt.Errorf("freeze %s: %w", id, err), b.resume(context.WithoutCancel(ctx)))
		}
		return f.Close()
	})
}

// Thaw implements engine.Freezer.
func (e *Engine) Thaw(ctx context.Context, id string) error {
	return e.exclusively(ctx, id, func(b *instance, mark string) error {
		if err := os.Remove(mark); errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return fmt.Errorf("thaw %s: %w", id, err)
		}
		// The file is gone, so a caller that leaves now must not leave the sandbox frozen.
		if err := b.resume(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("thaw %s: %w", id, err)
		}
		return nil
	})
}

// exclusively finds a running sandbox and locks its directory against other processes
// and callers that freeze or thaw it.
func (e *Engine) exclusively(ctx context.Context, id string, do func(b *instance, mark string) error) error {
	b, err := e.find(id)
	if err != nil {
		return err
	}
	b.watch()
	gone := engine.HasStopped(id, nil)
	if b.over() {
		return gone
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	mark := b.frozenMark()
	dir, err := os.Open(filepath.Dir(mark))
	if errors.Is(err, fs.ErrNotExist) {
		return gone
	} else if err != nil {
		return err
	}
	defer dir.Close() // which gives the lock back
	for {
		// A holder keeps the lock for as long as a pause may take.
		if err = unix.Flock(int(dir.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("lock sandbox %s: %w", id, err)
	}
	if err := do(b, mark); err != nil {
		return b.endedMeanwhile(ctx, err)
	}
	return nil
}

// frozen reports whether the sandbox stands still because a caller froze it.
func (b *instance) frozen() bool {
	_, err := os.Lstat(b.frozenMark())
	return err == nil
}

func (b *instance) frozenMark() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return filepath.Join(b.dir, frozenName)
}
