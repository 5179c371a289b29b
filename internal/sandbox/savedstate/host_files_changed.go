package savedstate

import (
	"context"
	"os"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// CodePrograms says that saved memory would go on with other programs.
const CodePrograms = "snapshot_programs_changed"

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
		now, err := s.Renewed(ctx, templateID, b)
		if err != nil {
			return err
		}
		if now.Revision != b.Revision {
			return fault.New(fault.Conflict, CodePrograms, "programs of the template have changed since the sandbox began, and what is in its memory refers to them").
				WithHint(hintPrograms)
		}
		return nil
	}
	_, missing, err := s.files.standIns(needs)
	if err != nil {
		return err
	}
	if missing != "" {
		return otherPrograms(missing)
	}
	return nil
}

func otherPrograms(path string) error {
	return fault.Newf(fault.Conflict, CodePrograms, "%s on the host has changed, no copy of it was kept, and what is in the sandbox's memory refers to it as it was", path).
		WithHint(hintPrograms)
}
