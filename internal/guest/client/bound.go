package client

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// guestGrace is how long the guest may take, after a program's time limit, to report that the
// program has ended.
const guestGrace = 10 * time.Second

var errGuestSilent = errors.New("the guest is silent")

// bounded returns the context of a program's stream. The guest enforces the time limit. But an
// attacker who is root inside can stop the guest, and then the caller would wait for ever. So
// the context ends guestGrace after the limit. A limit of zero means no bound.
func bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		ctx, cancel := context.WithCancel(ctx)
		return withoutDeadline(ctx), cancel
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit+guestGrace, errGuestSilent)
	return withoutDeadline(ctx), cancel
}

// silentError returns an error about the silent guest if the bound of the stream has passed,
// otherwise err.
func silentError(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errGuestSilent) {
		return fault.New(fault.Timeout, "guest_silent", "the sandbox's guest did not end the command at its time limit").
			WithHint("something inside keeps the guest from running; remove the sandbox")
	}
	return err
}

// withoutDeadline returns a context that passes on cancellation but has no deadline. In this
// protocol a deadline becomes the program's time limit, which Spec.Timeout sets.
func withoutDeadline(ctx context.Context) context.Context { return noDeadline{ctx} }

type noDeadline struct{ context.Context }

func (noDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }
