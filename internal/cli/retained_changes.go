package cli

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog"
)

// keepChangesTimeout bounds the comparison of the workspace at the end of a run.
const keepChangesTimeout = 2 * time.Minute

// keepRecordingsTimeout bounds the request to retain the recordings.
const keepRecordingsTimeout = 5 * time.Second

// changeSummary summarizes the changes of a run below its workspace, in the form of --json.
type changeSummary struct {
	ID      string `json:"id"` // reference for diff, apply and discard
	Files   int    `json:"files"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
}

// keepsChanges reports whether the changes of a run are retained after its sandbox has ended.
func (b *runSandbox) keepsChanges() bool {
	return b.sb != nil && !b.keep && b.hasWorkspace && !b.flags.noChanges
}

// keepChanges retains the changes and prints a summary. It returns nil if there are none.
func (b *runSandbox) keepChanges(ctx context.Context) *changeSummary {
	if !b.keepsChanges() || ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, keepChangesTimeout)
	defer cancel()
	retained, err := b.sb.KeepChanges(ctx)
	if err != nil {
		// The sandbox has ended with its files; that was reported already.
		if !errors.Is(err, crannog.ErrNotFound) && crannog.Code(err) != "manifest_gone" {
			b.app.note("the changes are not retained: %v", err)
		}
		return nil
	}
	if retained.Files == 0 {
		return nil
	}
	if !b.app.json && (b.flags.summary || isTerminal(b.app.Stderr)) {
		b.app.note("%s   crannog diff | apply | discard", counts(retained.Files, retained.Added, retained.Removed))
	}
	return &changeSummary{retained.ID, retained.Files, retained.Added, retained.Removed}
}
