package microvm_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/microvm"
	"github.com/crannog/crannog/internal/engine/microvm/microvmtest"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// A machine whose kernel runs, and whose guest does not report in time, is an error that says so, and
// leaves nothing. The control is every other test, with a longer time.
func TestHangingMachineIsAnError(t *testing.T) {
	if !hosttest.Full() {
		t.Skip("make test-microvm runs it")
	}
	files, dir := image(t), t.TempDir()
	e, err := microvm.New(microvm.Options{
		StateDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Guest: files.Guest(), Kernel: microvmtest.Kernel(), Emulate: true, Images: files,
		StartTime: time.Nanosecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	err = e.Create(t.Context(), engine.Spec{ID: killedID, Hostname: "box", Image: files.OCI(), Limits: engine.Limits{MemoryBytes: 256 << 20}})
	if fault.KindOf(err) != fault.Timeout || fault.CodeOf(err) != "machine_hangs" {
		t.Errorf("got %v, want a timeout", err)
	}
	wantNothing(t, dir)
}
