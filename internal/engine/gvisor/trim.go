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

// noRestoreError is gVisor's error for a caller that waits for the end of a restore when there is
// none.
const noRestoreError = "sandbox is not being restored"

// awaitStateRead waits until a restored sandbox has read all of its state. After that, later calls
// return at once. gVisor reads pages in the background, and frees memory that a program releases
// during that time only when it has finished reading. A checkpoint at that moment would write some
// of that memory incorrectly.
func (b *instance) awaitStateRead(ctx context.Context) error {
	if b.restored.Load() {
		return nil
	}
	if err := b.conns.call(ctx, boot.ContMgrWaitRestore, nil, nil); err != nil && !strings.Contains(err.Error(), noRestoreError) {
		return fmt.Errorf("wait for the end of the restore: %w", err)
	}
	b.restored.Store(true)
	return nil
}

// trim releases memory that programs have reserved and not touched, so that a checkpoint does not
// have to read it.
func (b *instance) trim(ctx context.Context) error {
	if err := b.awaitStateRead(ctx); err != nil {
		return err
	}
	var metrics control.MetricsExportData
	opts := control.MetricsExportOpts{OnlyMetrics: "^" + trim.Metric + "$"}
	if err := b.conns.call(ctx, boot.MetricsExport, &opts, &metrics); err != nil {
		return fmt.Errorf("trim: %w", err)
	}
	if metrics.Snapshot == nil {
		return nil
	}
	// A kernel of an earlier version does not have this metric.
	for _, m := range metrics.Snapshot.Data {
		if m.Number != nil && m.Number.Int == trim.Failed {
			return errors.New("trim: the kernel failed to release memory; its log has the reason")
		}
	}
	return nil
}
