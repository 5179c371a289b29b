package steps_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/sandbox/steps"
)

var errFails = errors.New("it fails")

// trace makes steps that record the calls.
type trace struct{ calls []string }

func (c *trace) step(name string, do, undo error) steps.Step {
	return steps.Step{
		Name: name,
		Do:   func(context.Context) error { c.calls = append(c.calls, "do "+name); return do },
		Undo: func(ctx context.Context) error {
			c.calls = append(c.calls, "undo "+name)
			return errors.Join(undo, ctx.Err())
		},
		Finally: func(err error) { c.calls = append(c.calls, fmt.Sprintf("end %s %v", name, err != nil)) },
	}
}

// TestEachFailureIsUndone lets each step fail in turn. That step and those before it must be undone
// in reverse order, and no later step may be called.
func TestEachFailureIsUndone(t *testing.T) {
	const n = 4
	for fails := range n + 1 {
		var c trace
		var list []steps.Step
		for i := range n {
			var do error
			if i == fails {
				do = errFails
			}
			list = append(list, c.step(fmt.Sprint(i), do, nil))
		}
		err := steps.Run(t.Context(), time.Minute, list...)
		var want []string
		for i := range min(fails+1, n) {
			want = append(want, fmt.Sprint("do ", i))
		}
		if fails < n {
			for i := fails; i >= 0; i-- {
				want = append(want, fmt.Sprint("undo ", i))
			}
		}
		for i := min(fails, n-1); i >= 0; i-- {
			want = append(want, fmt.Sprintf("end %d %v", i, fails < n))
		}
		if !slices.Equal(c.calls, want) {
			t.Errorf("step %d fails: %v, want %v", fails, c.calls, want)
		}
		if fails == n {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if !errors.Is(err, errFails) || steps.Failed(err) != fmt.Sprint(fails) {
			t.Errorf("step %d fails: %v", fails, err)
		}
	}
}

// TestUndoStopsAtFailure checks that after a failed undo the earlier steps are not undone, because
// they are needed to find what is left.
func TestUndoStopsAtFailure(t *testing.T) {
	var c trace
	err := steps.Run(t.Context(), time.Minute, c.step("row", nil, nil), c.step("instance", nil, errFails), c.step("start", errors.New("no memory"), nil))
	var e *steps.Error
	if !errors.As(err, &e) || e.Step != "start" || e.Stuck != "instance" || !errors.Is(err, errFails) {
		t.Errorf("got error %v, want the failed start and the stuck instance", err)
	}
	if slices.Contains(c.calls, "undo row") {
		t.Errorf("the row is removed and the instance is not: %v", c.calls)
	}
}

// TestUndoOutlivesCanceledContext checks that the undo runs even if the context has ended.
func TestUndoOutlivesCanceledContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var c trace
	last := steps.Step{Name: "wait", Do: func(ctx context.Context) error { cancel(); return ctx.Err() }}
	err := steps.Run(ctx, time.Minute, c.step("row", nil, nil), last)
	var e *steps.Error
	if !errors.As(err, &e) || e.Left != nil || !errors.Is(err, context.Canceled) || !slices.Contains(c.calls, "undo row") {
		t.Errorf("got error %v after the calls %v, want Canceled and an undone row", err, c.calls)
	}
}
