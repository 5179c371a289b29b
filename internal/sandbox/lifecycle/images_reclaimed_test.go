package lifecycle_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// TestClosePersistsSavedState checks that saved state is made durable even if the context of Close
// has ended.
func TestClosePersistsSavedState(t *testing.T) {
	r := newRig(t)
	sb := r.create(alice)
	r.snapshot(alice, sb.ID, "s")
	if _, err := r.Pause(t.Context(), alice, sb.ID, false); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Close(ended); err != nil {
		t.Error(err)
	}
	r.Service = nil
	if len(r.images.unpersisted) > 0 {
		t.Errorf("a reboot would lose %v", r.images.unpersisted)
	}
	if err := r.store.Close(); err != nil {
		t.Error(err)
	}
}

// Images without a row are removed to make room for a new one; images with a row are not.
func TestUnreferencedImagesMakeRoom(t *testing.T) {
	r := newRig(t)
	sb := r.create(alice)
	r.images.limit = 2
	r.snapshot(alice, sb.ID, "held")
	orphan := func() {
		if err := os.Mkdir(r.images.image("orphan"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	orphan()
	if _, err := r.Fork(t.Context(), alice, sb.ID, sandbox.ForkRequest{Count: 1}); err != nil {
		t.Error(err)
	}
	r.wantImages(1)
	orphan()
	if _, err := r.Snapshot(t.Context(), alice, sb.ID, sandbox.SnapshotRequest{}); err != nil {
		t.Error(err)
	}
	r.wantImages(2)
	_, err := r.Pause(t.Context(), alice, sb.ID, false)
	wantKind(t, err, fault.Exhausted, "snapshot_budget")
	r.wantImages(2)
}

// A process that ends waits for the pauses that deadlines have begun, but not for one that takes
// too long. The sandbox of the latter keeps running, and no error is reported for it.
func TestCloseWaitsForPauses(t *testing.T) {
	for state, saving := range map[sandbox.State]time.Duration{sandbox.Paused: 20 * time.Second, sandbox.Running: 2 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			sb := r.create(alice, func(c *sandbox.CreateRequest) { c.Timeout, c.OnEnd.Pause = time.Minute, true })
			r.setFault(func(step fake.Step, _ string) error {
				if step == fake.CheckpointBegin {
					time.Sleep(saving)
				}
				return nil
			})
			time.Sleep(time.Minute + time.Second)
			r.close()
			r.setFault(nil)
			r.open()
			row, err := r.store.Get(t.Context(), sb.ID)
			if err != nil || row.State != state {
				t.Errorf("pause that takes %v: the sandbox is %s, %v", saving, row.State, err)
			}
			entries, err := r.store.Entries(t.Context(), sb.ID)
			if err != nil || slices.ContainsFunc(entries, func(e sandbox.LogEntry) bool { return strings.Contains(e.Message, "cannot be paused") }) {
				t.Errorf("its log: %v, %v", entries, err)
			}
		})
	}
}
