package cli

import (
	"context"
	"errors"

	"github.com/crannog/crannog"
)

// keepRecordings retains the recordings of a run beyond its sandbox, as long as its changes.
func (b *runSandbox) keepRecordings(ctx context.Context) {
	if b.sb == nil || b.keep || b.flags.noChanges || !b.local {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepRecordingsTimeout)
	defer cancel()
	if _, err := b.sb.KeepRecordings(ctx); err != nil && !errors.Is(err, crannog.ErrNotFound) {
		b.app.note("the recordings are not retained: %v", err)
	}
}
