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

// waitFor waits for a sandbox. stillWaits finds it by its name on goroutine stacks.
func waitFor(ctx context.Context, e engine.Engine, id string) (engine.Exit, error) {
	return e.Wait(ctx, id)
}

// stillWaits returns when n goroutines are inside waitFor, because a wait that begins after the
// removal is for an unknown sandbox. A running sandbox must not be reported as ended.
func stillWaits(t testing.TB, exits <-chan engine.Exit, n int) {
	t.Helper()
	hosttest.Eventually(t, "the waits have begun", func() bool { return waiting() >= n })
	select {
	case exit := <-exits:
		t.Fatalf("wait returned %+v while the sandbox runs", exit)
	case <-time.After(50 * time.Millisecond):
	}
}

// waiting counts the goroutines that wait for a sandbox to end.
func waiting() (n int) {
	stacks := make([]byte, 4<<20)
	for one := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		state, frames, _ := strings.Cut(one, "\n")
		if strings.Contains(state, "[select") && strings.Contains(frames, "enginetest.waitFor") {
			n++
		}
	}
	return n
}
