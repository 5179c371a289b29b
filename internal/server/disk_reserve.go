package server

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/host/ticker"
)

// reserveEvery is how often a server restores its reserved disk space.
const reserveEvery = time.Minute

// keepReserve reserves disk space for the database, so that sandboxes can be removed after one of
// them has filled the disk. An error is only logged, because people start a server on a full disk
// to remove sandboxes.
func (d *Server) keepReserve(ctx context.Context) {
	if d.lock == nil {
		return
	}
	restore := func(ctx context.Context) {
		if err := d.store.KeepRoom(ctx); err != nil && ctx.Err() == nil {
			d.options.Log.Warn("no disk space reserved", "err", err)
		}
	}
	restore(ctx)
	d.endReserve = ticker.Every(context.WithoutCancel(ctx), reserveEvery, restore)
}
