package lifecycle

import (
	"context"
	"log/slog"
	"time"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/host/lockorder"
	"github.com/crannog/crannog/internal/sandbox"
)

// expireRetry is how long a deadline rests when the end of a sandbox could not be
// recorded.
const expireRetry = time.Second

// ender carries out what deadlines decide.
type ender interface {
	// lockForChangeOf locks a sandbox for a change of its state.
	lockForChangeOf(ctx context.Context, id string) (context.Context, sandbox.Row, func(), error)
	// pause takes a running sandbox to paused if its end has come by due.
	pause(ctx context.Context, r sandbox.Row, filesOnly bool, due time.Time) (sandbox.Row, error)
	// endRun ends a sandbox that still has the instance of a number.
	endRun(ctx context.Context, id string, run int64, reason string, at time.Time) error
	// finish frees what a sandbox holds whose row is in the state stopping.
	finish(ctx context.Context, id string, at time.Time) error
	// refresh takes over what another process changed in a row.
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
	// retention is how long a pause that fails is tried again.
	retention time.Duration
	wake      chan struct{} // full if a deadline has changed

	mu   lockorder.Mutex[rankDeadlines]
	late map[chan struct{}]bool // pauses that are under way
}

// rouse looks at all deadlines again.
func (d *deadlines) rouse() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// run carries deadlines out until the background ends.
func (d *deadlines) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		d.carryOut(time.Now())
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

func (d *deadlines) carryOut(now time.Time) {
	pause, end := d.live.takeDue(now)
	for _, b := range pause {
		d.startPause(b)
	}
	for _, b := range end {
		d.work.start(func() { d.expire(b) })
	}
}

// expire ends a sandbox whose time is up according to what this process knows.
// The row decides: another process may have extended it.
func (d *deadlines) expire(b *liveSandbox) {
	ctx, cancel := lasting(d.work.ctx)
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
	began, err := d.store.Move(ctx, id, sandbox.Move{
		From: []sandbox.State{sandbox.Running}, To: sandbox.Stopping, Reason: sandbox.ReasonTimeout, EndedBy: time.Now(),
	})
	if err != nil {
		return err
	}
	if began {
		return d.sandboxes.finish(ctx, id, time.Time{})
	}
	return d.sandboxes.refresh(ctx, id)
}

// retry looks at the deadline of a sandbox again.
func (d *deadlines) retry(b *liveSandbox) {
	d.live.notEnding(b)
	d.rouse()
}

// set takes over the end that a row has.
func (d *deadlines) set(r sandbox.Row) {
	d.live.setEnd(r)
	d.rouse()
}

// tellTimeout bounds how long a request waits for the guest to hear of its
// new end.
const tellTimeout = 2 * time.Second

// tell gives the guest its end, which it keeps by itself if no daemon is
// there. The row is the truth: if the guest does not answer, the maintenance loop
// tells it again. The lock of the ID must be held, so that an older end does
// not overtake.
func (d *deadlines) tell(ctx context.Context, r sandbox.Row) {
	if r.OnEnd.Pause {
		return // it knows of no end, which it would make
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
	defer cancel()
	err := d.engines.updateGuest(ctx, r, guest.Update{EndAt: &r.EndAt})
	if err != nil {
		d.log.Warn("guest did not hear of its end", "sandbox", r.ID, "err", err)
	}
	d.live.setOwed(r.ID, err != nil)
}
