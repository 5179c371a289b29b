package enginetest

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// waitFor waits for a sandbox. stillWaits finds this function by its name on goroutine stacks.
func waitFor(ctx context.Context, e engine.Engine, id string) (engine.Exit, error) {
	return e.Wait(ctx, id)
}

// stillWaits returns when n goroutines are inside waitFor: a wait that begins only after the
// removal would be for an unknown sandbox. It fails the test if a wait has returned already.
func stillWaits(t testing.TB, exits <-chan engine.Exit, n int) {
	t.Helper()
	hosttest.Eventually(t, "the waits have begun", func() bool { return waiting() >= n })
	select {
	case exit := <-exits:
		t.Fatalf("Wait returned %+v while the sandbox runs", exit)
	case <-time.After(50 * time.Millisecond):
	}
}

// waiting counts the goroutines that wait for a sandbox to end.
func waiting() (n int) {
	stacks := make([]byte, 4<<20)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		state, frames, _ := strings.Cut(stack, "\n")
		if strings.Contains(state, "[select") && strings.Contains(frames, "enginetest.waitFor") {
			n++
		}
	}
	return n
}
