package changes

import (
	"context"
	"errors"
	"os"

	"github.com/crannog/crannog/internal/filetree/changeset"
)

// Recover rolls back applies that were interrupted because their process was killed.
func (s *Service) Recover(ctx context.Context) error {
	if s.journals == "" {
		return nil
	}
	left, err := changeset.Recover(ctx, s.journals)
	for _, name := range left {
		s.log.Error("a directory could not be repaired after an interrupted apply", "file", name)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
