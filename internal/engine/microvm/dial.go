package microvm

import (
	"context"
	"net"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
)

// Dial implements engine.Engine. Each stream is a connection to a socket in the sandbox's
// directory, which its keeper forwards into the machine.
func (e *Engine) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	if err := engine.CheckPort(port); err != nil {
		return nil, err
	}
	b, err := e.sandboxes.Find(id)
	if err != nil {
		return nil, err
	}
	b.watch()
	if b.Over() {
		return nil, engine.HasStopped(id, nil)
	}
	return sandboxdir.Dial(ctx, b.dir, port, b.rec.Keeper.Alive)
}
