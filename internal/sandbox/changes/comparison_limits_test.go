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

// spell is a body that yields each piece after a delay, until the request ends.
type spell struct {
	ctx    context.Context
	pauses []time.Duration
}

func (s *spell) Read(b []byte) (int, error) {
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

func (*spell) Close() error { return nil }

// A guest that stops sending is not waited for, neither before its answer nor in the middle of it.
// A guest that sends a little at a time is waited for as long as its caller waits, and a reader may
// take its time.
func TestSilentGuestsAreNotAwaited(t *testing.T) {
	const little = guestTimeout - time.Second
	for name, c := range map[string]struct {
		before time.Duration
		pauses []time.Duration
		reader time.Duration
		want   string
	}{
		"well":          {little, []time.Duration{little, little, little}, 0, ""},
		"slow reader":   {0, []time.Duration{0, 0}, time.Hour, ""},
		"never answers": {time.Hour, nil, 0, "guest_silent"},
		"falls silent":  {0, []time.Duration{little, time.Hour}, 0, "guest_silent"},
	} {
		synctest.Test(t, func(t *testing.T) {
			res, err := awaited(t.Context(), func(ctx context.Context) (*http.Response, error) {
				select {
				case <-time.After(c.before):
					return &http.Response{Body: &spell{ctx, c.pauses}}, nil
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
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	// A caller that goes away does not count as the guest's silence.
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		res, err := awaited(ctx, func(ctx context.Context) (*http.Response, error) {
			return &http.Response{Body: &spell{ctx, []time.Duration{time.Hour}}}, nil
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

// A comparison has a time limit, which its context enforces.
func TestComparisonsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := make(slots, 1)
		until, done, err := all.await(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := inTime(t.Context(), until)
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
		// Giving a turn back twice frees only one.
		if err := errors.Join(done(), done()); err != nil || len(all) != 0 {
			t.Error(err, len(all))
		}
	})
}
