package gvisor

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
)

// over reports whether the sandbox is known to have ended. Another process may have created a
// sandbox with the same ID since then.
func (b *instance) over() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// watch waits for the end of the sandbox in the background, once.
func (b *instance) watch() {
	b.watching.Do(func() {
		b.conns.setSocket(b.rec.Socket)
		if !b.rec.Sentry.Alive() {
			close(b.guestless)
			b.ended(nil)
			return
		}
		go func() {
			status := b.guestExit()
			close(b.guestless)
			if status != nil {
				b.flushLast()
				// No program runs any more. Without the kill, gVisor would wait ten seconds for our
				// calls before it ends.
				if err := b.rec.Sentry.Kill(10 * time.Second); err != nil {
					b.e.log.Error("end the kernel after its guest", "sandbox", b.rec.ID, "err", err)
				}
			}
			b.rec.Sentry.Await()
			b.ended(status)
		}()
		b.boundMemory()
	})
}

// ended records why the sandbox stopped. It runs before the group is removed, because the group has
// the host kernel's count of processes that were killed for lack of memory.
func (b *instance) ended(status *unix.WaitStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.done:
		return
	default:
	}
	rec, dir, done, err := b.openDirectory()
	if err == nil {
		defer done()
	}
	b.replaced = errors.Is(err, errReplaced)
	b.exit = engine.Exit{Reason: engine.ReasonCrashed, At: time.Now()}
	switch {
	case b.rec.Exit != nil:
		b.exit = *b.rec.Exit
	case b.removed || b.replaced:
		b.exit.Reason = engine.ReasonKilled
	case b.rec.Group != nil && b.rec.Group.OOMKills() > 0:
		b.exit.Reason = engine.ReasonOOM
	case status != nil:
		b.exit.Reason, b.exit.Code = engine.ReasonExited, status.ExitStatus()
	default:
		// A kernel that printed nothing was killed.
		if message := b.crashMessage(); message != "" {
			b.e.log.Error("the kernel of a sandbox crashed", "sandbox", b.rec.ID, "words", message)
		}
	}
	b.conns.close()
	b.dropChannel()
	if b.rec.Exit == nil && !b.removed && !b.replaced {
		exit := b.exit
		b.rec.Exit, rec.Exit = &exit, &exit
		if err == nil {
			err = rec.write(dir)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.e.log.Error("record exit", "sandbox", b.rec.ID, "err", err)
		}
	}
	close(b.done)
}

// Wait implements engine.Engine.
func (e *Engine) Wait(ctx context.Context, id string) (engine.Exit, error) {
	var previous *instance
	for {
		b, err := e.find(id)
		if err != nil {
			return engine.Exit{}, err
		}
		b.watch()
		select {
		case <-b.done:
		case <-ctx.Done():
			return engine.Exit{}, ctx.Err()
		}
		// If another process has replaced the sandbox, wait for the replacement.
		if !b.replaced || b == previous {
			return b.exit, nil
		}
		previous = b
	}
}
