// Package steps owns sequences of named steps that can be undone: it runs the steps in order, and
// undoes them if one fails.
package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/telemetry"
)

// Step is one step of a sequence. Its name is for people and describes its action, as in "attach
// the network".
type Step struct {
	Name string
	Do   func(ctx context.Context) error
	// Undo undoes Do, also if Do failed halfway. It must be possible to call it twice. Nil is for a
	// step without lasting effects.
	Undo func(ctx context.Context) error
	// Finally is called when the sequence is over, in any case, with its error. It frees resources
	// that only the sequence needed. It is called only for a step whose Do was called.
	Finally func(err error)
}

// Error names the failed step and, if an undo failed, what is left.
type Error struct {
	// Step is the name of the step that failed.
	Step  string
	Cause error
	// Stuck is the name of the step whose undo failed, or "" if nothing is left.
	Stuck string
	// Left is the error of that undo.
	Left error
}

func (e *Error) Error() string {
	if e.Left == nil {
		return e.Step + ": " + e.Cause.Error()
	}
	return fmt.Sprintf("%s: %v; cannot undo %q: %v", e.Step, e.Cause, e.Stuck, e.Left)
}

// Unwrap returns the cause, and the error of the undo.
func (e *Error) Unwrap() []error {
	if e.Left == nil {
		return []error{e.Cause}
	}
	return []error{e.Cause, e.Left}
}

// Run executes the steps in order. If a step fails, it undoes that step and those before it, the
// last one first, within the time limit and even if ctx has ended. The undo stops at the first
// failure, because the earlier steps are needed to find what is left, such as a row that names an
// instance. An error is an *Error.
func Run(ctx context.Context, undoTime time.Duration, list ...Step) (err error) {
	started := 0
	defer func() {
		for i := started - 1; i >= 0; i-- {
			if f := list[i].Finally; f != nil {
				f(err)
			}
		}
	}()
	for i, step := range list {
		started = i + 1
		spanned, span := telemetry.Start(ctx, step.Name)
		cause := step.Do(spanned)
		telemetry.End(span, cause)
		if cause != nil {
			failed := &Error{Step: step.Name, Cause: cause}
			failed.Stuck, failed.Left = Undo(ctx, undoTime, list[:started]...)
			return failed
		}
	}
	return nil
}

// Undo undoes the steps, the last one first, and returns the name of the first whose undo fails.
func Undo(ctx context.Context, within time.Duration, list ...Step) (stuck string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	for _, step := range slices.Backward(list) {
		if step.Undo == nil {
			continue
		}
		if err := step.Undo(ctx); err != nil {
			return step.Name, err
		}
	}
	return "", nil
}

// Failed returns the name of the step that failed, or "".
func Failed(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Step
	}
	return ""
}

// Left reports whether a failed sequence could not be undone completely.
func Left(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Left != nil
}
