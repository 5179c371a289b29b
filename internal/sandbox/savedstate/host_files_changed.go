package savedstate

import (
	"context"
	"os"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// CodePrograms is the code of the error that programs have changed since memory was saved.
const CodePrograms = "snapshot_programs_changed"

// hintPrograms is the hint of that error.
const hintPrograms = "continue with the files alone: crannog resume --files-only for a paused sandbox, pause or snapshot --files-only for a running one"

// checkHostFiles rejects memory that refers to changed host files: it would execute code that does
// not exist any more.
func (s *Service) checkHostFiles(ctx context.Context, templateID string, b sandbox.Base, needs *sandbox.Needs) error {
	for _, bind := range b.Image.View().Binds {
		if _, err := os.Stat(bind.Source); err != nil {
			return programsChanged(bind.Source)
		}
	}
	if needs == nil {
		// The memory was saved by an earlier version, or its engine cannot report the files. In
		// both cases it may refer to any file.
		renewed, err := s.Renewed(ctx, templateID, b)
		if err != nil {
			return err
		}
		if renewed.Revision != b.Revision {
			return fault.New(fault.Conflict, CodePrograms, "programs of the template have changed since the sandbox started, and its memory refers to the old ones").
				WithHint(hintPrograms)
		}
		return nil
	}
	_, missing, err := s.files.replacements(needs)
	if err != nil {
		return err
	}
	if missing != "" {
		return programsChanged(missing)
	}
	return nil
}

func programsChanged(path string) error {
	return fault.Newf(fault.Conflict, CodePrograms, "%s on the host has changed, there is no copy of the old file, and the sandbox's memory refers to it", path).
		WithHint(hintPrograms)
}
