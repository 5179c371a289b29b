package lifecycle

import (
	"context"
	"os"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// codePrograms says that saved memory would go on with other programs.
const codePrograms = "snapshot_programs_changed"

// hintPrograms is what helps then.
const hintPrograms = "go on with the files alone: crannog resume --files-only for one that is paused, pause or snapshot --files-only for one that runs"

// sameFiles refuses memory that refers to files of the host which are others now:
// it would run through code that is not there any more.
func (s *Service) sameFiles(ctx context.Context, templateID string, b sandbox.Base, needs *sandbox.Needs) error {
	for _, bind := range b.Image.View().Binds {
		if _, err := os.Stat(bind.Source); err != nil {
			return otherPrograms(bind.Source)
		}
	}
	if needs == nil {
		// It was saved by an earlier version, or its engine cannot tell what it
		// refers to: then it may be anything.
		now, err := s.anew(ctx, templateID, b)
		if err != nil {
			return err
		}
		if now.Revision != b.Revision {
			return fault.New(fault.Conflict, codePrograms, "programs of the template have changed since the sandbox began, and what is in its memory refers to them").
				WithHint(hintPrograms)
		}
		return nil
	}
	_, missing, err := s.hostFiles.standIns(needs)
	if err != nil {
		return err
	}
	if missing != "" {
		return otherPrograms(missing)
	}
	return nil
}

func otherPrograms(path string) error {
	return fault.Newf(fault.Conflict, codePrograms, "%s on the host has changed, no copy of it was kept, and what is in the sandbox's memory refers to it as it was", path).
		WithHint(hintPrograms)
}

// savedMemory writes a sandbox's memory down, and keeps copies of what it refers to.
func (s *Service) savedMemory(ctx context.Context, r sandbox.Row, c engine.Checkpointer, dir string) (*sandbox.Needs, error) {
	binder, ok := c.(engine.Binder)
	if !ok {
		return nil, c.Checkpoint(ctx, r.ID, dir)
	}
	list, bound, err := binder.CheckpointBound(ctx, r.ID, dir)
	if err != nil {
		return nil, err
	}
	defer list.Open.Close()
	var needs *sandbox.Needs
	if bound {
		needs = &sandbox.Needs{Files: s.hostFiles.keep(r, list)}
	}
	// What could never go on is not kept.
	return needs, s.sameFiles(ctx, r.TemplateID, r.Base, needs)
}
