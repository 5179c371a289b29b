package savedstate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// Saver saves a sandbox into a draft, and returns the host files to which its memory refers.
type Saver func(ctx context.Context, draft sandbox.Draft) (*sandbox.Needs, error)

// Saver returns the function that saves a sandbox on its engine, and the format of the result.
func (s *Service) Saver(ctx context.Context, r sandbox.Row, filesOnly bool) (Saver, string, error) {
	if err := s.Available(); err != nil {
		return nil, "", err
	}
	if err := r.Base.CheckRebuildable(); err != nil {
		return nil, "", err
	}
	if !filesOnly {
		c, err := Checkpointer(s.deps.Engines, r.Engine)
		if err != nil {
			return nil, "", err
		}
		if _, binds := c.(engine.Binder); !binds {
			// A sandbox whose state could never be restored is refused before any work is done.
			if err := s.CheckFits(ctx, r.Engine, r.TemplateID, r.Base, sandbox.Saved{Format: c.Format()}); err != nil {
				return nil, "", err
			}
		}
		return func(ctx context.Context, draft sandbox.Draft) (*sandbox.Needs, error) {
			draft.Declare(c.Parts())
			return s.saveMemory(ctx, r, c, draft.Dir())
		}, c.Format(), nil
	}
	a, err := archiver(s.deps.Engines, r.Engine)
	if err != nil {
		return nil, "", err
	}
	return func(ctx context.Context, draft sandbox.Draft) (_ *sandbox.Needs, err error) {
		draft.Declare([]engine.Part{{Name: archiveName, Kind: engine.PartBlob}})
		f, err := os.OpenFile(filepath.Join(draft.Dir(), archiveName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		return nil, a.Archive(ctx, r.ID, f)
	}, "", nil
}

// Save saves a sandbox into a draft.
func (s *Service) Save(ctx context.Context, r sandbox.Row, draft sandbox.Draft, save Saver) (*sandbox.Needs, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, saveTimeout,
		fault.Newf(fault.Timeout, "save_timeout", "the sandbox was not saved within %s", saveTimeout))
	defer cancel()
	needs, err := save(ctx, draft)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = errors.Join(sandbox.Canceled(cause), err)
		}
		return nil, fmt.Errorf("save %s: %w", r.ID, DiskFull(err))
	}
	s.deps.Saved(r)
	return needs, nil
}

// DiskFull explains a failed save if the caller can remove its cause.
func DiskFull(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fault.Wrap(err, fault.Exhausted, "snapshot_disk_full", "the disk of the state directory is full").
			WithHint("free space: crannog snapshot ls, crannog prune")
	}
	return err
}

// saveMemory saves a sandbox's memory, and keeps copies of the host files to which it refers.
func (s *Service) saveMemory(ctx context.Context, r sandbox.Row, c engine.Checkpointer, dir string) (*sandbox.Needs, error) {
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
		needs = &sandbox.Needs{Files: s.files.keep(r, list)}
	}
	// A state that could never be restored is discarded.
	return needs, s.checkHostFiles(ctx, r.TemplateID, r.Base, needs)
}
