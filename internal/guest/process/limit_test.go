package process

import (
	"testing"
	"time"
)

func TestChargeIgnoresSuspendedTime(t *testing.T) {
	for name, c := range map[string]struct{ left, step, took, want time.Duration }{
		"in time":                    {time.Minute, 4 * time.Second, 4 * time.Second, 56 * time.Second},
		"late":                       {time.Minute, 4 * time.Second, 8 * time.Second, 56 * time.Second},
		"saved during a step":        {time.Minute, 4 * time.Second, time.Hour, time.Minute},
		"last step":                  {time.Second, time.Second, time.Second, 0},
		"saved during the last step": {time.Second, time.Second, time.Hour, time.Second},
		"short limit":                {time.Millisecond, time.Millisecond, 20 * time.Millisecond, 0},
	} {
		if got := charge(c.left, c.step, c.took); got != c.want {
			t.Errorf("charge, %s: got %v, want %v", name, got, c.want)
		}
	}
}
