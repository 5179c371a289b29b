package clock

import (
	"testing"

	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
)

// A clock that nobody started is left alone: its page is not there to write.
func TestStandsStill(t *testing.T) {
	if err := Calibrate(sentry.NewTimekeeper()); err == nil {
		t.Error("a clock that stands still was read")
	}
}
