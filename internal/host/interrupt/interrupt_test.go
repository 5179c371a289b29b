package interrupt_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/host/interrupt"
)

func TestInTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	over := interrupt.When(ctx, func() { t.Error("it was called") })
	for range 2 {
		if !over() {
			t.Error("stop reports that it was called")
		}
	}
	cancel()
}

// After stop has returned, the function does not run any more, however long it takes.
func TestTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		called := false
		over := interrupt.When(ctx, func() {
			time.Sleep(time.Second)
			called = true
		})
		cancel()
		synctest.Wait() // it has begun
		if over() {
			t.Error("stop reports that it was not called")
		}
		if !called {
			t.Error("over returned before stop was called")
		}
		if over() {
			t.Error("the second stop reports that it was not called")
		}
	})
}
