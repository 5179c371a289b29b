package microvm_test

import (
	"context"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
)

// BenchmarkRestore compares a machine that continues from a saved state with one that boots, in one
// run: until its guest is ready, and how much processor time that takes, which does not depend on the
// load of the host.
func BenchmarkRestore(b *testing.B) {
	image(b)
	dir, saved := b.TempDir(), b.TempDir()
	e := open(false)(b, dir)
	// start returns how long run takes, on the benchmark's clock, and the processor time of the
	// sandbox.
	start := func(run func() error) (took, processor time.Duration) {
		b.Helper()
		before := b.Elapsed()
		if err := run(); err != nil {
			b.Fatal(err)
		}
		took = b.Elapsed() - before
		usage, err := e.(engine.Meter).Usage(context.WithoutCancel(b.Context()), killedID)
		if err != nil {
			b.Fatal(err)
		}
		return took, usage.CPUTime
	}
	remove := func() {
		b.Helper()
		if err := e.Remove(context.WithoutCancel(b.Context()), killedID); err != nil {
			b.Fatal(err)
		}
	}
	bootTime, bootProcessor := start(func() error { return e.Create(b.Context(), specOf(b, "")) })
	if err := e.(engine.Checkpointer).Checkpoint(b.Context(), killedID, saved); err != nil {
		b.Fatal(err)
	}
	remove()
	var restoreTime, restoreProcessor time.Duration
	for b.Loop() {
		took, processor := start(func() error {
			return e.(engine.Checkpointer).Restore(b.Context(), specOf(b, guest.Resumed), saved)
		})
		restoreTime, restoreProcessor = restoreTime+took, restoreProcessor+processor
		b.StopTimer()
		remove()
		b.StartTimer()
	}
	n := time.Duration(b.N)
	b.ReportMetric(float64(bootTime.Milliseconds()), "boot-ms")
	b.ReportMetric(float64((restoreTime / n).Milliseconds()), "restore-ms")
	b.ReportMetric(float64(bootTime)/float64(restoreTime/n), "boots/restore")
	b.ReportMetric(float64(bootProcessor.Milliseconds()), "boot-cpu-ms")
	b.ReportMetric(float64((restoreProcessor / n).Milliseconds()), "restore-cpu-ms")
}
