package cli

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog"
)

// leftoverTime is how long the end of a run may take to see what is changed.
const leftoverTime = 2 * time.Minute

// rememberTime bounds saying that what a run printed is kept.
const rememberTime = 5 * time.Second

// leftover is what a run has changed below its workspace, as --json shows it.
type leftover struct {
	ID      string `json:"id"` // for diff, apply and discard
	Files   int    `json:"files"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
}

// leaves reports whether the changes of a run are retained after its sandbox has ended.
func (b *box) leaves() bool {
	return b.sb != nil && !b.keep && b.shows && !b.flags.noChanges
}

// leftover keeps what was changed and tells about it, or returns nil if
// nothing was.
func (b *box) leftover(ctx context.Context) *leftover {
	if !b.leaves() || ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leftoverTime)
	defer cancel()
	kept, err := b.sb.KeepChanges(ctx)
	if err != nil {
		// A sandbox that has ended took its files with it, and has said so.
		if !errors.Is(err, crannog.ErrNotFound) && crannog.Code(err) != "manifest_gone" {
			b.app.note("what was changed is not kept: %v", err)
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
