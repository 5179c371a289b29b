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

// Whichever step fails, it and those before it are undone in reverse, and no later one is called.
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

// If an undo fails, the steps before it are kept, by which the rest is found.
func TestTheUndoStopsWhereItFails(t *testing.T) {
	var c trace
	err := steps.Run(t.Context(), time.Minute, c.step("row", nil, nil), c.step("instance", nil, errFails), c.step("start", errors.New("no memory"), nil))
	var e *steps.Error
	if !errors.As(err, &e) || e.Step != "start" || e.Stuck != "instance" || !errors.Is(err, errFails) {
		t.Errorf("%v", err)
	}
	if slices.Contains(c.calls, "undo row") {
		t.Errorf("the row is removed and the instance is not: %v", c.calls)
	}
}

// A caller that goes away does not stop the undo.
func TestTheUndoLastsLongerThanItsCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var c trace
	last := steps.Step{Name: "wait", Do: func(ctx context.Context) error { cancel(); return ctx.Err() }}
	err := steps.Run(ctx, time.Minute, c.step("row", nil, nil), last)
	var e *steps.Error
	if !errors.As(err, &e) || e.Left != nil || !errors.Is(err, context.Canceled) || !slices.Contains(c.calls, "undo row") {
		t.Errorf("%v, %v", err, c.calls)
	}
}
