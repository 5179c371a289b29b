package lifecycle

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/savedstate"
)

// closePauseTimeout limits how long Close waits for pauses that deadlines started.
const closePauseTimeout = 30 * time.Second

// awaitPauses waits for pauses in progress. Without a server, only short commands use this package:
// each would begin a pause and exit before the pause is finished.
func (d *deadlines) awaitPauses(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePauseTimeout)
	defer cancel()
	d.mu.Lock()
	pauses := slices.Collect(maps.Keys(d.pauses))
	d.mu.Unlock()
	for _, done := range pauses {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// startPause pauses a sandbox in the background.
func (d *deadlines) startPause(b *liveSandbox) {
	done := make(chan struct{})
	d.mu.Lock()
	d.pauses[done] = true
	d.mu.Unlock()
	end := func() {
		d.mu.Lock()
		delete(d.pauses, done)
		d.mu.Unlock()
		close(done)
	}
	if !d.work.start(func() { d.pause(b); end() }) {
		end()
	}
}

// pause pauses a sandbox whose time is up. If that fails, for example on a full disk, the sandbox
// continues, because ending it would lose its state.
func (d *deadlines) pause(b *liveSandbox) {
	delay := d.live.delay(b.id)
	// Close ends operations in progress; the next process pauses the sandbox.
	ctx, r, release, err := d.sandboxes.lockForChangeOf(d.work.ctx, b.id)
	if err == nil {
		err = d.pauseOverdue(ctx, r)
		release()
	}
	switch {
	case err == nil || d.work.ended() || fault.CodeOf(err) == codeShuttingDown:
		d.live.clearDelay(b.id)
	case slices.Contains([]string{sandbox.CodeUnknown, sandbox.CodeNotRunning, sandbox.CodeRemoved, sandbox.CodeChanged}, fault.CodeOf(err)):
		// Another process has extended, paused or ended it.
		ctx, cancel := withoutCaller(d.work.ctx)
		defer cancel()
		if err := d.operations.locked(ctx, b.id, d.sandboxes.refresh); err != nil {
			d.log.Warn("changed row of a sandbox not adopted", "sandbox", b.id, "err", err)
		}
	default:
		d.log.Warn("sandbox not paused in time, and tried again", "sandbox", b.id, "tries", delay.tries, "at", delay.until, "err", err)
		if delay.tries == 1 {
			d.sandboxes.note(d.work.ctx, b.id, "warn", "its time is up, and it cannot be paused: "+fault.PublicText(err), nil)
		}
	}
	d.retry(b)
}

// pauseOverdue pauses a sandbox whose time is up and was not extended. It ends the sandbox instead
// if the pause is so late that no client would still wait for it.
func (d *deadlines) pauseOverdue(ctx context.Context, r sandbox.Row) error {
	if r.State != sandbox.Running || r.EndAt.IsZero() || r.EndAt.After(time.Now()) {
		return d.sandboxes.refresh(ctx, r.ID)
	}
	_, err := d.sandboxes.pause(ctx, r, r.OnEnd.FilesOnly, time.Now())
	if fault.CodeOf(err) == savedstate.CodePrograms {
		// The sandbox's memory could not be restored later, but its files can.
		if _, err = d.sandboxes.pause(ctx, r, true, time.Now()); err == nil {
			d.sandboxes.note(ctx, r.ID, "warn", "paused without its memory: programs of the host have changed since it began", nil)
		}
	}
	if err == nil || time.Since(r.EndAt) < d.retention || d.work.ended() {
		return err
	}
	d.log.Error("sandbox ended: it could not be paused", "sandbox", r.ID, "err", err)
	ctx, cancel := withoutCaller(ctx)
	defer cancel()
	return d.sandboxes.endRun(ctx, r.ID, r.Run, sandbox.ReasonPauseFailed, time.Time{})
}
