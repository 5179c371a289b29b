package sandbox_test

import (
	"context"
	"testing"
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
