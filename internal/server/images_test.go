package server_test

import (
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/snapshot"
)

// countDurable returns how many saved states survive a power failure, and how many do not.
func countDurable(t *testing.T, dir string) (durable, lost int) {
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
			durable++
		} else {
			lost++
		}
	}
	return durable, lost
}

// P28: a state that a command saved without a server survives a power failure, however soon the
// command ends.
func TestCloseMakesSavedStatesDurable(t *testing.T) {
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
	if durable, lost := countDurable(t, dir); durable != 0 || lost != 2 {
		t.Fatalf("before Close %d of %d states are durable, want none", durable, durable+lost)
	}
	closeServer(t, d)
	if durable, lost := countDurable(t, dir); durable != 2 || lost != 0 {
		t.Errorf("after Close %d of %d states are durable, want both", durable, durable+lost)
	}
}
