package lifecycle

import (
	"context"
	"log/slog"
	"time"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/host/lockorder"
	"github.com/crannog/crannog/internal/sandbox"
)

// expireRetry is how long the end of a sandbox is postponed if it could not be written into the
// audit log.
const expireRetry = time.Second

// ender ends and pauses sandboxes whose deadlines have come.
type ender interface {
	// lockForChangeOf locks a sandbox for a change of its state.
	lockForChangeOf(ctx context.Context, id string) (context.Context, sandbox.Row, func(), error)
	// pause pauses a running sandbox if its time is up by due.
	pause(ctx context.Context, r sandbox.Row, filesOnly bool, due time.Time) (sandbox.Row, error)
	// endRun ends a sandbox whose instance still has the given number.
	endRun(ctx context.Context, id string, run int64, reason string, at time.Time) error
	// finish frees the resources of a sandbox in the state stopping.
	finish(ctx context.Context, id string, at time.Time) error
	// refresh adopts changes that another process made in a row.
	refresh(ctx context.Context, id string) error
	// note adds a line to a sandbox's log.
	note(ctx context.Context, id, level, message string, fields map[string]string)
}

// deadlines ends or pauses running sandboxes when their time is up.
type deadlines struct {
	sandboxes  ender
	store      sandbox.Store
	engines    engines
	live       *liveSandboxes
	operations *operations
	work       *background
	log        *slog.Logger
	// retention is how long a failing pause is retried.
	retention time.Duration
	wake      chan struct{} // holds a value if a deadline has changed

	mu     lockorder.Mutex[rankDeadlines]
	pauses map[chan struct{}]bool // pauses in progress
}

// checkAll makes run check all deadlines again.
func (d *deadlines) checkAll() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// run executes deadlines until the background ends.
func (d *deadlines) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		d.runDue(time.Now())
		if next := d.live.nextDue(); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-d.work.ctx.Done():
			return
		case <-d.wake:
		case <-timer.C:
		}
	}
}

func (d *deadlines) runDue(now time.Time) {
	pause, end := d.live.takeDue(now)
	for _, b := range pause {
		d.startPause(b)
	}
	for _, b := range end {
		d.work.start(func() { d.expire(b) })
	}
}

// expire ends a sandbox whose time is up according to this process. The row decides, because
// another process may have extended the sandbox.
func (d *deadlines) expire(b *liveSandbox) {
	ctx, cancel := withoutCaller(d.work.ctx)
	defer cancel()
	err := d.operations.locked(ctx, b.id, d.expireLocked)
	if err == nil {
		return
	}
	d.log.Error("sandbox not ended in time", "sandbox", b.id, "err", err)
	select {
	case <-d.work.ctx.Done():
	case <-time.After(expireRetry):
	}
	d.retry(b)
}

func (d *deadlines) expireLocked(ctx context.Context, id string) error {
	started, err := d.store.Move(ctx, id, sandbox.Move{
		From: []sandbox.State{sandbox.Running}, To: sandbox.Stopping, Reason: sandbox.ReasonTimeout, EndedBy: time.Now(),
	})
	if err != nil {
		return err
	}
	if started {
		return d.sandboxes.finish(ctx, id, time.Time{})
	}
	return d.sandboxes.refresh(ctx, id)
}

// retry checks the deadline of a sandbox again after a while.
func (d *deadlines) retry(b *liveSandbox) {
	d.live.notEnding(b)
	d.checkAll()
}

// set adopts the end in a row.
func (d *deadlines) set(r sandbox.Row) {
	d.live.setEnd(r)
	d.checkAll()
}

// notifyTimeout limits how long a request waits for the guest to accept its new end.
const notifyTimeout = 2 * time.Second

// notify sends the guest its end, which the guest enforces by itself if no server runs. The row
// decides: if the guest does not answer, the maintenance loop sends the end again. The lock of the
// ID must be held, so that an older end is not sent after a newer one.
func (d *deadlines) notify(ctx context.Context, r sandbox.Row) {
	if r.OnEnd.Pause {
		return // the guest has no end to enforce
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), notifyTimeout)
	defer cancel()
	err := d.engines.updateGuest(ctx, r, guest.Update{EndAt: &r.EndAt})
	if err != nil {
		d.log.Warn("guest did not accept its end", "sandbox", r.ID, "err", err)
	}
	d.live.setEndUnsent(r.ID, err != nil)
}
