package savedstate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// extract extracts the files from the saved memory in dir into a private draft. drop removes the
// draft once the files are closed. dir does not change, so that a crash loses nothing.
func (s *Service) extract(ctx context.Context, name string, spec engine.Spec, dir string) (files *os.File, drop func() error, err error) {
	a, err := archiver(s.deps.Engines, name)
	if err != nil {
		return nil, nil, err
	}
	draft, err := s.Begin(ctx, s.deps.NewID())
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, draft.Abort())
		}
	}()
	files, err = os.OpenFile(filepath.Join(draft.Dir(), archiveName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, nil, DiskFull(err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, saveTimeout,
		fault.Newf(fault.Timeout, "save_timeout", "the files were not extracted from the saved memory within %s", saveTimeout))
	defer cancel()
	if err := a.Extract(ctx, spec, dir, files); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = errors.Join(sandbox.Canceled(cause), err)
		}
		return nil, nil, errors.Join(fmt.Errorf("files of %s: %w", spec.ID, DiskFull(err)), files.Close())
	}
	return files, draft.Abort, nil
}
