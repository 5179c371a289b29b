package server_test

import (
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/snapshot"
)

// durable counts saved states that survive a power failure, and those that do not.
func durable(t *testing.T, dir string) (yes, no int) {
	t.Helper()
	images, err := snapshot.Open(filepath.Join(dir, "snapshots"), snapshot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer images.Close()
	sizes, err := images.Sizes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, z := range sizes {
		if z.Durable {
			yes++
		} else {
			no++
		}
	}
	return yes, no
}

// P28: a state that a command saved without a server survives a power failure, however soon the
// command ends.
func TestWhatWasSavedIsOnTheDiskAtTheEnd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	d := mustOpen(t, dir, false)
	sb, err := d.Service.Create(t.Context(), local, sandbox.CreateRequest{Template: "base"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Service.Snapshot(t.Context(), local, sb.ID, sandbox.SnapshotRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Service.Pause(t.Context(), local, sb.ID, false); err != nil {
		t.Fatal(err)
	}
	if yes, no := durable(t, dir); yes != 0 || no != 2 {
		t.Fatalf("%d of %d are durable before the end: this shows nothing", yes, yes+no)
	}
	shut(t, d)
	if yes, no := durable(t, dir); yes != 2 || no != 0 {
		t.Errorf("%d of %d are durable", yes, yes+no)
	}
}
