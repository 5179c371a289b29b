package process

import (
	"testing"
	"time"
)

func TestCharge(t *testing.T) {
	for name, c := range map[string]struct{ left, step, took, want time.Duration }{
		"in time":            {time.Minute, 4 * time.Second, 4 * time.Second, 56 * time.Second},
		"late":               {time.Minute, 4 * time.Second, 8 * time.Second, 56 * time.Second},
		"saved in between":   {time.Minute, 4 * time.Second, time.Hour, time.Minute},
		"the last":           {time.Second, time.Second, time.Second, 0},
		"saved in the last":  {time.Second, time.Second, time.Hour, time.Second},
		"shorter than usual": {time.Millisecond, time.Millisecond, 20 * time.Millisecond, 0},
	} {
		if got := charge(c.left, c.step, c.took); got != c.want {
			t.Errorf("%s: %v are left, want %v", name, got, c.want)
		}
	}
}
