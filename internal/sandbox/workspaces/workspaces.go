// Package workspaces owns data about sandboxes' workspaces beside their files: copies, where a
// policy requires one, and manifests of the initial state of a workspace.
package workspaces

import (
	"context"
	"log/slog"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/workspace"
)

// Rows is the part of the store about sandboxes and snapshots.
type Rows interface {
	Get(ctx context.Context, id string) (sandbox.Row, error)
	GetSnapshot(ctx context.Context, id string) (sandbox.Stored, error)
	// Holds reports whether a copy of a workspace is needed by a snapshot, or by a sandbox other
	// than except.
	Holds(ctx context.Context, copyID, except string) (bool, error)
}

// Retained is the store of retained changes.
type Retained interface {
	Has(id string) bool
	// Needs reports whether retained changes need a copy of a workspace.
	Needs(copyID string) bool
}

// Deps is what a Service needs. Copies, Manifests and Retained may be nil.
type Deps struct {
	Rows      Rows
	Copies    *workspace.Copies
	Manifests *workspace.Manifests
	Retained  Retained
	Log       *slog.Logger
}

// Service is safe for concurrent use.
type Service struct{ deps Deps }

// New returns a Service.
func New(d Deps) *Service { return &Service{d} }

// Copies returns the copies of workspaces, or nil.
func (s *Service) Copies() *workspace.Copies { return s.deps.Copies }

func isNotFound(err error) bool { return fault.KindOf(err) == fault.NotFound }
