// Package savedstate owns the saved states of sandboxes on disk. It makes engines write memory or
// files into images, and opens images for a boot. It rejects images that cannot be restored on this
// host, and removes those without a row.
package savedstate

import (
	"context"
	"log/slog"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// Rows is the part of the store that the package uses.
type Rows interface {
	List(ctx context.Context, q sandbox.Query) ([]sandbox.Row, error)
	ListSnapshots(ctx context.Context, q sandbox.SnapshotQuery) ([]sandbox.Stored, error)
	DeleteSnapshot(ctx context.Context, id string) error
	HoldsImage(ctx context.Context, id string) (bool, error)
}

// Deps is what a Service needs. Without Images nothing is saved. Without HostFiles, saved memory
// can be restored as long as the host has the files to which it refers.
type Deps struct {
	Rows      Rows
	Engines   *engine.Registry
	Templates sandbox.Templates
	Images    sandbox.Images
	HostFiles sandbox.HostFiles
	Log       *slog.Logger
	// NewID returns the ID for an image without a row.
	NewID func() string
	// Saved is called for each sandbox whose state was saved.
	Saved func(sandbox.Row)
	// Dead reports whether a process has ended.
	Dead func(sandbox.Process) bool
}

// Service saves and opens states. It is safe for concurrent use.
type Service struct {
	deps  Deps
	files hostFiles
	// newImages holds a value if there are new images.
	newImages chan struct{}
}

// New returns a Service.
func New(d Deps) *Service {
	return &Service{deps: d, files: hostFiles{d.Rows, d.HostFiles, d.Log}, newImages: make(chan struct{}, 1)}
}

// saveTimeout limits how long it may take to save a state.
const saveTimeout = 10 * time.Minute

// archiveName is the file of an image without memory.
const archiveName = "files.tar"

// Available returns an error if this server saves no states.
func (s *Service) Available() error {
	if s.deps.Images == nil {
		return fault.New(fault.Unsupported, "state_unsupported", "this server cannot save the state of sandboxes")
	}
	return nil
}

// CanSave returns an error if an engine's sandboxes cannot be saved.
func (s *Service) CanSave(engineName string, filesOnly bool) error {
	err := s.Available()
	switch {
	case err != nil:
	case filesOnly:
		_, err = archiver(s.deps.Engines, engineName)
	default:
		_, err = Checkpointer(s.deps.Engines, engineName)
	}
	return err
}

// Checkpointer returns an engine's ability to save memory and to restore it.
func Checkpointer(r *engine.Registry, name string) (engine.Checkpointer, error) {
	e, err := r.Of(name)
	if err != nil {
		return nil, err
	}
	c, ok := e.(engine.Checkpointer)
	if !ok {
		err := fault.Newf(fault.Unsupported, "state_unsupported", "the engine %s cannot save or copy memory and processes", name).
			WithHint("use an engine for which crannog engines lists the capability checkpointer")
		if _, ok := e.(engine.Archiver); ok {
			err = err.WithHint("save only files (--files-only, or files_only in the API), or use an engine with the capability checkpointer")
		}
		return nil, err
	}
	return c, nil
}

// CanReplace returns an error if the instance of an engine's sandbox cannot be replaced by one with
// saved files.
func CanReplace(r *engine.Registry, name string) error {
	if _, err := archiver(r, name); err == nil {
		return nil
	}
	_, err := Checkpointer(r, name)
	return err
}

// archiver returns an engine's ability to write files alone.
func archiver(r *engine.Registry, name string) (engine.Archiver, error) {
	e, err := r.Of(name)
	if err != nil {
		return nil, err
	}
	a, ok := e.(engine.Archiver)
	if !ok {
		return nil, fault.Newf(fault.Unsupported, "state_unsupported", "the engine %s cannot save the files of a sandbox", name).
			WithHint("use an engine for which crannog engines lists the capability archiver")
	}
	return a, nil
}
