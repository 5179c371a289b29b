package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/steps"
)

// Names of the steps for a sandbox that had an instance before, in addition to those of its boot.
const (
	stepResuming = "set the row to resuming"
	stepOld      = "remove the rest of the old instance"
	stepAgain    = "plan the new instance"
)

// bootAgain returns the steps that start another instance of an existing sandbox. They store the
// new instance's base in the row.
func (s *Service) bootAgain(r *sandbox.Row, from source) []steps.Step {
	b := s.newBoot(*r, nil, engine.Spec{}, guest.Config{}, from)
	prepare := steps.Step{Name: stepAgain, Do: func(ctx context.Context) (err error) {
		if b.policy, err = s.planner.compileFor(*r, r.Access); err != nil {
			return err
		}
		if !b.from.Memory() {
			// The sandbox can be resumed as long as these programs exist.
			earlier := r.Base.Image
			b.from.Image = &earlier
			if r.Base, err = s.states.Renewed(ctx, r.TemplateID, r.Base); err != nil {
				return err
			}
		}
		b.spec, b.config = s.planner.compose(r, b.policy)
		b.row = *r
		return nil
	}}
	return append([]steps.Step{prepare}, b.steps()...)
}

// restart executes the steps of bootAgain.
func (s *Service) restart(ctx context.Context, r *sandbox.Row, from source) error {
	if err := steps.Run(ctx, undoTimeout, s.bootAgain(r, from)...); err != nil {
		return fmt.Errorf("restart %s: %w", r.ID, err)
	}
	return nil
}

// resumeFailure returns the error for the caller of a failed resumption, which was undone as far as
// possible.
func (s *Service) resumeFailure(ctx context.Context, id string, err error) error {
	if steps.Left(err) {
		s.operations.markUnwritten(id) // the maintenance loop tries again
	}
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(canceled(cause), err)
	}
	s.log.Warn("sandbox not resumed", "sandbox", id, "err", err)
	return err
}
