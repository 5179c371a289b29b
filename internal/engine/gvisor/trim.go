package gvisor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/crannog/crannog/internal/engine/gvisor/trim"
)

// notGoingOn is gVisor's error for a caller that waits for the end of a restore when there is none.
const notGoingOn = "sandbox is not being restored"

// awaitStateRead waits, once, until a restored sandbox has read all of its state. gVisor reads
// pages in the background, and its reader holds each page until it has finished. Memory that a
// program releases during that time is freed when the reader is done. A save that reads the same
// tables at that moment would write some of it incorrectly.
func (b *instance) awaitStateRead(ctx context.Context) error {
	if b.restored.Load() {
		return nil
	}
	if err := b.conns.call(ctx, boot.ContMgrWaitRestore, nil, nil); err != nil && !strings.Contains(err.Error(), notGoingOn) {
		return fmt.Errorf("wait for the end of the restore: %w", err)
	}
	b.restored.Store(true)
	return nil
}

// trim releases memory that programs have reserved and not touched, so that a save does not have to
// read it.
func (b *instance) trim(ctx context.Context) error {
	if err := b.awaitStateRead(ctx); err != nil {
		return err
	}
	var figures control.MetricsExportData
	opts := control.MetricsExportOpts{OnlyMetrics: "^" + trim.Metric + "$"}
	if err := b.conns.call(ctx, boot.MetricsExport, &opts, &figures); err != nil {
		return fmt.Errorf("trim: %w", err)
	}
	if figures.Snapshot == nil {
		return nil
	}
	// A kernel of an earlier version does not have this metric.
	for _, figure := range figures.Snapshot.Data {
		if figure.Number != nil && figure.Number.Int == trim.Failed {
			return errors.New("trim: the kernel failed to release memory; its log has the reason")
		}
	}
	return nil
}
