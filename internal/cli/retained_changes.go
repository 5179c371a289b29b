package cli

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog"
)

// leftoverTime bounds the comparison of the workspace at the end of a run.
const leftoverTime = 2 * time.Minute

// rememberTime bounds the request to retain the recordings.
const rememberTime = 5 * time.Second

// leftover contains the changes of a run below its workspace, in the form of --json.
type leftover struct {
	ID      string `json:"id"` // reference for diff, apply and discard
	Files   int    `json:"files"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
}

// leaves reports whether the changes of a run are retained after its sandbox has ended.
func (b *runSandbox) leaves() bool {
	return b.sb != nil && !b.keep && b.shows && !b.flags.noChanges
}

// leftover retains the changes and prints a summary. It returns nil if there are none.
func (b *runSandbox) leftover(ctx context.Context) *leftover {
	if !b.leaves() || ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leftoverTime)
	defer cancel()
	kept, err := b.sb.KeepChanges(ctx)
	if err != nil {
		// The sandbox has ended with its files; that was reported already.
		if !errors.Is(err, crannog.ErrNotFound) && crannog.Code(err) != "manifest_gone" {
			b.app.note("the changes are not retained: %v", err)
		}
		return nil
	}
	if kept.Files == 0 {
		return nil
	}
	if !b.app.json && (b.flags.summary || isTerminal(b.app.Stderr)) {
		b.app.note("%s   crannog diff | apply | discard", counts(kept.Files, kept.Added, kept.Removed))
	}
	return &leftover{kept.ID, kept.Files, kept.Added, kept.Removed}
}
