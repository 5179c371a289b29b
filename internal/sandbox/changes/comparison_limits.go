package changes

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// maxComparing bounds how many comparisons of files go on at once: each holds
// the lists of several trees, which a sandbox may make as long as it can.
const maxComparing = 2

// comparingTime bounds one, or sandboxes that tell of their files a byte at a time
// would keep everybody else from theirs for ever.
const comparingTime = 5 * time.Minute

// turns are what comparisons wait for.
type turns chan struct{}

// await waits for a turn, of which the context tells the end, and returns how
// to give it back.
func (t turns) await(ctx context.Context) (until time.Time, done func() error, err error) {
	select {
	case t <- struct{}{}:
	case <-ctx.Done():
		return time.Time{}, nil, sandbox.Canceled(context.Cause(ctx))
	}
	returned := false
	return time.Now().Add(comparingTime), func() error {
		if !returned {
			returned = true
			<-t
		}
		return nil
	}, nil
}

// inTime is a context that ends with the time of a comparison.
func inTime(ctx context.Context, until time.Time) (context.Context, context.CancelFunc) {
	return context.WithDeadlineCause(ctx, until,
		fault.Newf(fault.Timeout, "comparison_timeout", "the sandbox's files could not be compared within %s", comparingTime))
}

// guestPatience is how long a guest may say nothing in the middle of its files.
// It is silent while it sums up what is large.
const guestPatience = 2 * time.Minute

// errGuestSilent is why its stream was cut.
var errGuestSilent = fault.Newf(fault.Timeout, "guest_silent", "the sandbox's guest said nothing of its files for %s", guestPatience)

// awaited sends a request to the guest and cancels it when the next piece of the
// answer takes longer than guestPatience. A program with root inside may have
// replaced the guest, and must not block the caller by answering slowly.
func awaited(ctx context.Context, ask func(context.Context) (*http.Response, error)) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(guestPatience, func() { cancel(errGuestSilent) })
	end := func() {
		late.Stop()
		cancel(nil)
	}
	res, err := ask(ctx)
	if err != nil {
		err = silenceOr(ctx, err)
		end()
		return nil, err
	}
	late.Stop()
	res.Body = &listened{ReadCloser: res.Body, ctx: ctx, late: late, end: end}
	return res, nil
}

// silenceOr is err, or that it comes of the guest's silence.
func silenceOr(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errGuestSilent) {
		return errGuestSilent
	}
	return err
}

// listened is the body of such an answer.
type listened struct {
	io.ReadCloser
	ctx  context.Context
	late *time.Timer
	end  func()
}

// Read implements io.Reader.
func (l *listened) Read(b []byte) (int, error) {
	// The guest may be silent while the caller does not read.
	l.late.Reset(guestPatience)
	n, err := l.ReadCloser.Read(b)
	l.late.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = silenceOr(l.ctx, err)
	}
	return n, err
}

// Close implements io.Closer.
func (l *listened) Close() error {
	l.end()
	return l.ReadCloser.Close()
}
