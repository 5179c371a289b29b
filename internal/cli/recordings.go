package cli

import (
	"context"
	"errors"

	"github.com/crannog/crannog"
)

// remember keeps what the command of a run printed beyond its sandbox, as long
// as what it changed.
func (b *box) remember(ctx context.Context) {
	if b.sb == nil || b.keep || b.flags.noChanges || !b.local {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rememberTime)
	defer cancel()
	if _, err := b.sb.KeepRecordings(ctx); err != nil && !errors.Is(err, crannog.ErrNotFound) {
		b.app.note("what was printed is not kept: %v", err)
	}
}
