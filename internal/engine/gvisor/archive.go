package gvisor

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
)

const architecture = runtime.GOARCH

// Archive implements engine.Archiver.
func (e *Engine) Archive(ctx context.Context, id string, w *os.File) error {
	b, err := e.find(id)
	if err != nil {
		return err
	}
	opts := control.TarRootfsUpperLayerOpts{ContainerID: b.rec.Kernel, FilePayload: urpc.FilePayload{Files: []*os.File{w}}}
	if err := b.conns.call(ctx, boot.FsTarRootfsUpperLayer, &opts, nil); err != nil {
		return saveFault(id, fmt.Errorf("files: %w", err))
	}
	return nil
}
