package jail

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

// readingName is a file in a sandbox's directory that exists while the sandbox is frozen because
// its files are being read. The reader holds a lock on the directory. If the file exists without a
// lock, the reader has died, and the sandbox must be thawed.
const readingName = "reading"

// running returns a sandbox that has not stopped.
func (e *Engine) running(id string) (*instance, error) {
	b, err := e.sandboxes.Find(id)
	if err != nil {
		return nil, err
	}
	b.watch()
	if b.Over() {
		return nil, engine.HasStopped(id, nil)
	}
	return b, nil
}

// exclusively calls do with a running sandbox whose directory is locked. Freezing and reading the
// files take this lock, in all processes.
func (e *Engine) exclusively(ctx context.Context, id string, do func(b *instance) error) error {
	b, err := e.running(id)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	release, err := b.lock(unix.LOCK_EX)
	if err != nil {
		return b.orStopped(err)
	}
	defer release()
	return do(b)
}

// lock locks the sandbox's directory.
func (b *instance) lock(how int) (release func(), err error) {
	dir, err := os.Open(b.dir)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(dir.Fd()), how); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("flock", err), dir.Close())
	}
	return func() { _ = dir.Close() }, nil // closing releases the lock
}

// freeze freezes the sandbox until resume is called. The caller holds the lock.
func (b *instance) freeze() (resume func() error, err error) {
	mark := filepath.Join(b.dir, readingName)
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return nil, err
	}
	resume = func() error {
		err := b.rec.Group.Freeze(false)
		if err == nil {
			err = os.Remove(mark)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the sandbox was removed
		}
		return err
	}
	if err := b.rec.Group.Freeze(true); err != nil {
		return nil, errors.Join(err, resume())
	}
	return resume, nil
}

// adopt prepares a sandbox that another process has created.
func (b *instance) adopt() error {
	return errors.Join(b.recover(), b.resume())
}

// recover thaws a sandbox whose reader has died.
func (b *instance) recover() error {
	mark := filepath.Join(b.dir, readingName)
	if _, err := os.Lstat(mark); err != nil {
		return nil
	}
	release, err := b.lock(unix.LOCK_EX | unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
		return nil // the files are being read, or the sandbox is gone
	}
	if err != nil {
		return err
	}
	defer release()
	if _, err := os.Lstat(mark); err != nil {
		return nil
	}
	if err := b.rec.Group.Freeze(false); err != nil {
		return fmt.Errorf("thaw sandbox %s: %w", b.rec.ID, err)
	}
	if err := os.Remove(mark); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// orStopped replaces an error by the fault for a stopped sandbox if the sandbox has ended.
func (b *instance) orStopped(err error) error {
	if err != nil && !b.rec.Init.Alive() {
		return engine.HasStopped(b.rec.ID, err)
	}
	return err
}
