package changes

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// slowBody is a body that returns each byte after a pause, until its context ends.
type slowBody struct {
	ctx    context.Context
	pauses []time.Duration
}

func (s *slowBody) Read(b []byte) (int, error) {
	if len(s.pauses) == 0 {
		return 0, io.EOF
	}
	select {
	case <-time.After(s.pauses[0]):
		s.pauses = s.pauses[1:]
		return copy(b, "x"), nil
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
}

func (*slowBody) Close() error { return nil }

// TestSilentGuestTimesOut checks that a request fails if the guest stops sending before or within
// its answer. A guest that pauses for a short time after each byte and a slow reader cause no
// timeout.
func TestSilentGuestTimesOut(t *testing.T) {
	const shortPause = guestTimeout - time.Second
	for name, c := range map[string]struct {
		before time.Duration
		pauses []time.Duration
		reader time.Duration
		want   string
	}{
		"slow guest":    {shortPause, []time.Duration{shortPause, shortPause, shortPause}, 0, ""},
		"slow reader":   {0, []time.Duration{0, 0}, time.Hour, ""},
		"never answers": {time.Hour, nil, 0, "guest_silent"},
		"falls silent":  {0, []time.Duration{shortPause, time.Hour}, 0, "guest_silent"},
	} {
		synctest.Test(t, func(t *testing.T) {
			res, err := withGuestTimeout(t.Context(), func(ctx context.Context) (*http.Response, error) {
				select {
				case <-time.After(c.before):
					return &http.Response{Body: &slowBody{ctx, c.pauses}}, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			})
			for err == nil {
				time.Sleep(c.reader)
				_, err = res.Body.Read(make([]byte, 10))
			}
			if errors.Is(err, io.EOF) {
				err = res.Body.Close()
			}
			if fault.CodeOf(err) != c.want && (err != nil || c.want != "") {
				t.Errorf("%s: got error %v, want code %q", name, err, c.want)
			}
		})
	}
	// A canceled caller does not count as a silent guest.
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		res, err := withGuestTimeout(ctx, func(ctx context.Context) (*http.Response, error) {
			return &http.Response{Body: &slowBody{ctx, []time.Duration{time.Hour}}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := res.Body.Read(make([]byte, 10)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := res.Body.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestComparisonTimesOut checks the time limit of a comparison and of the wait for a slot.
func TestComparisonTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := make(slots, 1)
		deadline, done, err := all.await(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := withTimeLimit(t.Context(), deadline)
		defer cancel()
		<-ctx.Done()
		if err := sandbox.Canceled(context.Cause(ctx)); fault.CodeOf(err) != "comparison_timeout" {
			t.Error(err)
		}
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, _, err := all.await(short); fault.CodeOf(err) != "timeout" {
			t.Error(err)
		}
		// Releasing a slot twice frees only one slot.
		if err := errors.Join(done(), done()); err != nil || len(all) != 0 {
			t.Errorf("release of a slot twice: %v; %d slots are in use, want 0", err, len(all))
		}
	})
}
