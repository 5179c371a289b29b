package microvm_test

import (
	"log/slog"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/microvm"
	"github.com/crannog/crannog/internal/fault"
)

// P73: a machine never gets a volume, because the host's kernel would mount a file system that the
// machine has written. The request is refused before anything is created.
func TestMachinesGetNoVolumes(t *testing.T) {
	e, err := microvm.New(microvm.Options{StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	spec := engine.Spec{
		ID: "volume1", Image: engine.Image{OCI: &engine.OCI{}, Guest: "/guest"},
		Volumes: []engine.Volume{{Source: t.TempDir(), Target: "/mnt/data"}},
	}
	if err := e.Create(t.Context(), spec); fault.CodeOf(err) != engine.CodeVolumes {
		t.Errorf("create with a volume: got %v, want %s", err, engine.CodeVolumes)
	}
	// The control: the same request without a volume fails for another reason.
	spec.Volumes = nil
	if err := e.Create(t.Context(), spec); fault.CodeOf(err) == engine.CodeVolumes || err == nil {
		t.Errorf("create without a volume and without an image store: got %v", err)
	}
	if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}
