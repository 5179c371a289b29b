package interrupt_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/host/interrupt"
)

func TestReleaseBeforeContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	release := interrupt.When(ctx, func() { t.Error("interrupt was called") })
	for range 2 {
		if !release() {
			t.Error("release returned false, want true: interrupt was not called")
		}
	}
	cancel()
}

// After release has returned, interrupt does not run any more, however long it takes.
func TestReleaseWaitsForInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		called := false
		release := interrupt.When(ctx, func() {
			time.Sleep(time.Second)
			called = true
		})
		cancel()
		synctest.Wait() // interrupt has begun
		if release() {
			t.Error("release returned true, want false: interrupt was called")
		}
		if !called {
			t.Error("release returned before interrupt did")
		}
		if release() {
			t.Error("the second release returned true, want false")
		}
	})
}
