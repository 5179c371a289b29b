package server

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/host/ticker"
)

// roomEvery is how often a server makes its reserves of the disk whole again.
const roomEvery = time.Minute

// keepRoom reserves disk for the database while a server has the state, so that
// sandboxes can be removed when one of them has filled the disk. It is no reason
// not to start: who starts a server on a full disk wants to remove something.
func (d *Server) keepRoom(ctx context.Context) {
	if d.lock == nil {
		return
	}
	keep := func(ctx context.Context) {
		if err := d.store.KeepRoom(ctx); err != nil && ctx.Err() == nil {
			d.options.Log.Warn("no room kept on the disk", "err", err)
		}
	}
	keep(ctx)
	d.roomy = ticker.Every(context.WithoutCancel(ctx), roomEvery, keep)
}
