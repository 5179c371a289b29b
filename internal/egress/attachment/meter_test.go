package attachment

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestMetersRefillPerSecond checks that after an idle time a meter admits twice its rate at once,
// and then its rate per second.
func TestMetersRefillPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeters(Options{ConnectsPerSecond: 50, NamesPerSecond: 7}.orDefault())
		for _, c := range []struct {
			name string
			take func() bool
			rate int
		}{
			{"connects", m.connects.Allow, 50}, {"queries", m.queries.Allow, 7}, {"refusals", m.refusals.Allow, 100},
			{"reports", m.reports.Allow, 20}, {"junk", m.junk.Allow, 5000},
		} {
			admitted := func() (n int) {
				for c.take() {
					n++
				}
				return n
			}
			for _, step := range []struct {
				quiet time.Duration
				want  int
			}{
				{0, 2 * c.rate},
				{time.Second, c.rate},
				{time.Second/time.Duration(c.rate) + time.Nanosecond, 1},
				{time.Second / time.Duration(2*c.rate), 0}, // half an event
				{time.Second/time.Duration(2*c.rate) + 2*time.Nanosecond, 1},
				{time.Hour, 2 * c.rate},
			} {
				time.Sleep(step.quiet)
				if n := admitted(); n != step.want {
					t.Errorf("%s admits %d events after %v, want %d", c.name, n, step.quiet, step.want)
				}
			}
		}
	})
}

// TestPauseEndsWithAttachment checks that a paused reader does not outlive its attachment.
func TestPauseEndsWithAttachment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan struct{})
		started := time.Now()
		pauseReading(gone)
		if took := time.Since(started); took != 10*time.Millisecond {
			t.Errorf("the pause took %v, want 10ms", took)
		}
		close(gone)
		started = time.Now()
		pauseReading(gone)
		if took := time.Since(started); took != 0 {
			t.Errorf("the pause took %v after the attachment had ended, want 0", took)
		}
	})
}
