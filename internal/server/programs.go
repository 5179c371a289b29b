package server

import (
	"context"

	"github.com/crannog/crannog/internal/host/embedded"
)

// dropPrograms removes embedded programs of earlier versions. It keeps guest programs that are in
// the memory of a paused sandbox or a snapshot. An error is only logged, because the next server
// tries again.
func (d *Server) dropPrograms(ctx context.Context) {
	needed, err := d.Service.Programs(ctx)
	if err != nil {
		d.options.Log.Warn("programs of earlier versions are kept", "err", err)
		return
	}
	for _, dir := range d.options.Programs {
		removed, err := embedded.Prune(dir, func(path string) bool { return needed[path] })
		if err != nil {
			d.options.Log.Warn("programs of earlier versions are kept", "directory", dir, "err", err)
		}
		if len(removed) > 0 {
			d.options.Log.Info("programs of earlier versions removed", "paths", removed)
		}
	}
}
