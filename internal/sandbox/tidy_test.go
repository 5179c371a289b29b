package sandbox_test

import (
	"context"
	"os"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// Who closes may have been told to stop: what was saved is seen to all the same.
func TestCloseKeepsWhatWasSaved(t *testing.T) {
	r := newRig(t)
	sb := r.create(alice)
	r.snapshot(alice, sb.ID, "s")
	if _, err := r.Pause(t.Context(), alice, sb.ID, false); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Close(over); err != nil {
		t.Error(err)
	}
	r.Service = nil
	if len(r.album.loose) > 0 {
		t.Errorf("a reboot would lose %v", r.album.loose)
	}
	if err := r.store.Close(); err != nil {
		t.Error(err)
	}
}

// What no row refers to makes room for what is saved, and what one refers to
// does not.
func TestWhatNobodyHoldsMakesRoom(t *testing.T) {
	r := newRig(t)
	sb := r.create(alice)
	r.album.most = 2
	r.snapshot(alice, sb.ID, "held")
	orphan := func() {
		if err := os.Mkdir(r.album.image("orphan"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	orphan()
	if _, err := r.Fork(t.Context(), alice, sb.ID, sandbox.ForkRequest{Count: 1}); err != nil {
		t.Error(err)
	}
	r.images(1)
	orphan()
	if _, err := r.Snapshot(t.Context(), alice, sb.ID, sandbox.SnapshotRequest{}); err != nil {
		t.Error(err)
	}
	r.images(2)
	_, err := r.Pause(t.Context(), alice, sb.ID, false)
	wantKind(t, err, fault.Exhausted, "snapshot_budget")
	r.images(2)
}
