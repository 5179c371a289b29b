package lifecycle

import (
	"context"
	"errors"

	"github.com/crannog/crannog/internal/sandbox/changes"
	"github.com/crannog/crannog/internal/sandbox/recordings"
	"github.com/crannog/crannog/internal/sandbox/workspaces"
)

// sandboxData contains the data of sandboxes other than their rows and saved states.
type sandboxData struct {
	workspaces *workspaces.Service // copies and manifests
	recordings *recordings.Service // recordings of commands
	changes    *changes.Service    // what ended sandboxes have changed
}

// sweep removes data of sandboxes that no longer exist, and recovers applies of dead processes.
func (k sandboxData) sweep(ctx context.Context) error {
	return errors.Join(k.recordings.Sweep(ctx), k.changes.Sweep(), k.workspaces.SweepCopies(ctx), k.workspaces.SweepManifests(ctx), k.changes.Recover(ctx))
}

// discard removes all retained changes and recordings.
func (k sandboxData) discard(ctx context.Context) error {
	return errors.Join(k.changes.ForgetAll(), k.recordings.DiscardAll(ctx))
}
