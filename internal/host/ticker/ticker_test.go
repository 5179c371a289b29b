package ticker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/host/ticker"
)

func TestEveryCallsUntilStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		var ended atomic.Bool
		stop := ticker.Every(t.Context(), time.Minute, func(ctx context.Context) {
			if n.Add(1) == 3 {
				<-ctx.Done()
				ended.Store(true)
			}
		})
		time.Sleep(59 * time.Second)
		if n := n.Load(); n != 0 {
			t.Errorf("%d calls before the first interval has passed, want 0", n)
		}
		time.Sleep(2 * time.Minute)
		if n := n.Load(); n != 2 {
			t.Errorf("%d calls one second before the third interval ends, want 2", n)
		}
		time.Sleep(time.Minute)
		stop()
		if n := n.Load(); n != 3 || !ended.Load() {
			t.Errorf("%d calls, want 3; the last call continued after stop: %t", n, !ended.Load())
		}
		stop()
		ctx, cancel := context.WithCancel(t.Context())
		stop = ticker.Every(ctx, time.Second, func(context.Context) { n.Store(-1) })
		cancel()
		stop()
		time.Sleep(time.Minute)
		if n.Load() != 3 {
			t.Error("it still ticks after its context has ended")
		}
	})
}
