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

// frozenName is a file that exists in a frozen sandbox's directory. gVisor counts how often a
// kernel was paused, and crashes if it is resumed more often. So each pause is recorded for later
// processes. After a crash between the pause and the creation of the file, the sandbox stays paused
// until it is removed.
const frozenName = "frozen"

// Freeze implements engine.Freezer.
func (e *Engine) Freeze(ctx context.Context, id string) error {
	return e.exclusively(ctx, id, func(b *instance, mark string) error {
		if b.frozen() {
			return nil
		}
		if err := b.pauseWithin(pauseTimeout); err != nil {
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
		// The file is removed, so the sandbox must not stay frozen if the caller cancels now.
		if err := b.resume(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("thaw %s: %w", id, err)
		}
		return nil
	})
}

// exclusively calls do with a running sandbox whose directory is locked. Freezing and thawing take
// this lock, in all processes.
func (e *Engine) exclusively(ctx context.Context, id string, do func(b *instance, mark string) error) error {
	b, err := e.find(id)
	if err != nil {
		return err
	}
	b.watch()
	errStopped := engine.HasStopped(id, nil)
	if b.over() {
		return errStopped
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	mark := b.frozenMark()
	dir, err := os.Open(filepath.Dir(mark))
	if errors.Is(err, fs.ErrNotExist) {
		return errStopped
	} else if err != nil {
		return err
	}
	defer dir.Close() // closing releases the lock
	for {
		// This may wait for another process, which holds the lock during a pause.
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

// frozen reports whether the sandbox is frozen.
func (b *instance) frozen() bool {
	_, err := os.Lstat(b.frozenMark())
	return err == nil
}

// frozenMark returns the path of the file frozenName.
func (b *instance) frozenMark() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return filepath.Join(b.dir, frozenName)
}
