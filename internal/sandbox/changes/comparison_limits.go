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

// maxComparisons is how many comparisons may run at once. Each holds the file lists of several
// trees in memory, which a sandbox can make very long.
const maxComparisons = 2

// comparisonTimeout limits one comparison. Otherwise sandboxes that list their files a byte at a
// time would block the comparisons of all others for ever.
const comparisonTimeout = 5 * time.Minute

// slots limits the comparisons that run at once.
type slots chan struct{}

// await waits for a place among the running comparisons, and returns a function that releases it.
// The context ends with the time limit of the place.
func (t slots) await(ctx context.Context) (deadline time.Time, done func() error, err error) {
	select {
	case t <- struct{}{}:
	case <-ctx.Done():
		return time.Time{}, nil, sandbox.Canceled(context.Cause(ctx))
	}
	returned := false
	return time.Now().Add(comparisonTimeout), func() error {
		if !returned {
			returned = true
			<-t
		}
		return nil
	}, nil
}

// withTimeLimit returns a context with the time limit of a comparison.
func withTimeLimit(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	return context.WithDeadlineCause(ctx, deadline,
		fault.Newf(fault.Timeout, "comparison_timeout", "the sandbox's files could not be compared within %s", comparisonTimeout))
}

// guestTimeout is how long a guest may send nothing in the middle of an answer, as while it
// computes checksums of large files.
const guestTimeout = 2 * time.Minute

// errGuestSilent is the cause with which the guest's stream is canceled.
var errGuestSilent = fault.Newf(fault.Timeout, "guest_silent", "the sandbox's guest sent no data for %s", guestTimeout)

// withGuestTimeout sends a request to the guest, and cancels it when the guest sends nothing for
// guestTimeout. A program with root inside may have replaced the guest, and must not
// block the caller by answering slowly.
func withGuestTimeout(ctx context.Context, send func(context.Context) (*http.Response, error)) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(guestTimeout, func() { cancel(errGuestSilent) })
	end := func() {
		timer.Stop()
		cancel(nil)
	}
	res, err := send(ctx)
	if err != nil {
		err = silenceOr(ctx, err)
		end()
		return nil, err
	}
	timer.Stop()
	res.Body = &timedBody{ReadCloser: res.Body, ctx: ctx, timer: timer, end: end}
	return res, nil
}

// silenceOr returns errGuestSilent if that caused err, and err otherwise.
func silenceOr(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errGuestSilent) {
		return errGuestSilent
	}
	return err
}

// timedBody is the body of an answer that withGuestTimeout returns.
type timedBody struct {
	io.ReadCloser
	ctx   context.Context
	timer *time.Timer
	end   func()
}

// Read implements io.Reader.
func (l *timedBody) Read(b []byte) (int, error) {
	// The timeout is stopped between reads, because the guest may be silent while the caller does
	// not read.
	l.timer.Reset(guestTimeout)
	n, err := l.ReadCloser.Read(b)
	l.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = silenceOr(l.ctx, err)
	}
	return n, err
}

// Close implements io.Closer.
func (l *timedBody) Close() error {
	l.end()
	return l.ReadCloser.Close()
}
