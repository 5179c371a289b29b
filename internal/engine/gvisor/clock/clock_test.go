package clock

import (
	"testing"

	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
)

// A clock that was not started is not changed, because its page does not exist yet.
func TestCalibrateRejectsStoppedClock(t *testing.T) {
	if err := Calibrate(sentry.NewTimekeeper()); err == nil {
		t.Error("Calibrate accepted a clock that was not started")
	}
}
