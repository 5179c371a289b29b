package lifecycle

import (
	"context"
	"errors"

	"github.com/crannog/crannog/internal/sandbox/changes"
	"github.com/crannog/crannog/internal/sandbox/recordings"
	"github.com/crannog/crannog/internal/sandbox/workspaces"
)

// kept is what is kept of sandboxes beside their rows and their saved states.
type kept struct {
	workspaces *workspaces.Service // copies and manifests
	recordings *recordings.Service // of what commands printed
	changes    *changes.Service    // what ended sandboxes have changed
}

// sweep drops what belongs to no sandbox any more, and finishes what a dead process was
// applying.
func (k kept) sweep(ctx context.Context) error {
	return errors.Join(k.recordings.Sweep(ctx), k.changes.Sweep(), k.workspaces.SweepCopies(ctx), k.workspaces.SweepManifests(ctx), k.changes.Recover(ctx))
}

// discard drops all changes and recordings.
func (k kept) discard(ctx context.Context) error {
	return errors.Join(k.changes.ForgetAll(), k.recordings.DiscardAll(ctx))
}
