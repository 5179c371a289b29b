package client

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// guestGrace is how much longer than a program's time limit its guest may take to report that the
// program has ended.
const guestGrace = 10 * time.Second

var errSilent = errors.New("the guest is silent")

// bounded returns the context of a program's stream. The guest enforces the time limit, but an
// attacker who is root inside can stop the guest, and the caller must not wait for it for ever. A
// limit of zero means no bound.
func bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		ctx, cancel := context.WithCancel(ctx)
		return withoutDeadline(ctx), cancel
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit+guestGrace, errSilent)
	return withoutDeadline(ctx), cancel
}

// heard returns err, or an error about the silent guest if that is the cause.
func heard(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		return fault.New(fault.Timeout, "guest_silent", "the sandbox's guest did not end the command at its time limit").
			WithHint("something inside keeps the guest from running; remove the sandbox")
	}
	return err
}

// withoutDeadline passes cancellation on and hides the deadline: in this protocol a deadline
// becomes the program's time limit, which Spec.Timeout sets.
func withoutDeadline(ctx context.Context) context.Context { return timeless{ctx} }

type timeless struct{ context.Context }

func (timeless) Deadline() (time.Time, bool) { return time.Time{}, false }
