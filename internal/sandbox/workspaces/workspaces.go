// Package workspaces owns what is kept of sandboxes' workspaces beside their files: copies,
// where a policy wants one, and manifests of what a workspace was at the start.
package workspaces

import (
	"context"
	"log/slog"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/workspace"
)

// Rows is what the store knows of sandboxes and snapshots.
type Rows interface {
	Get(ctx context.Context, id string) (sandbox.Row, error)
	GetSnapshot(ctx context.Context, id string) (sandbox.Stored, error)
	// Holds reports whether a row other than one refers to the copy of a workspace.
	Holds(ctx context.Context, of, except string) (bool, error)
}

// Retained is what is retained of ended sandboxes' changes.
type Retained interface {
	Has(id string) bool
	// Needs reports whether a copy is needed.
	Needs(copied string) bool
}

// Deps is what a Service is made of. Copies, Manifests and Retained may be nil.
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

// Copies are the copies of workspaces, or nil.
func (s *Service) Copies() *workspace.Copies { return s.deps.Copies }

func unknown(err error) bool { return fault.KindOf(err) == fault.NotFound }
