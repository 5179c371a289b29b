package admission

import (
	"testing"
	"time"
)

// climb simulates a machine that makes rate(limit) starts per second, and returns the limits of the
// last windows.
func climb(l *limit, rate func(int) float64) (lowest, highest int) {
	now := time.Unix(1e9, 0)
	lowest = 1 << 30
	for i := range 5000 {
		now = now.Add(time.Duration(float64(time.Second) / rate(l.now)))
		l.completed(now, true)
		if i > 3000 {
			lowest, highest = min(lowest, l.now), max(highest, l.now)
		}
	}
	return lowest, highest
}

func TestLimitFindsTheHighestRate(t *testing.T) {
	for name, c := range map[string]struct {
		rate    func(int) float64
		lo, hi  int
		explain string
	}{
		"more is never better":   {func(n int) float64 { return 10 / (1 + 0.1*float64(n)) }, 2, 4, "near the least"},
		"it makes no difference": {func(int) float64 { return 10 }, 2, 4, "near the least"},
		"best at six": {func(n int) float64 {
			if n <= 6 {
				return float64(n)
			}
			return float64(12 - n)
		}, 4, 8, "around six"},
		"more is always better": {func(n int) float64 { return float64(n) }, 6, 8, "near the most"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimit(0, 2)
			lo, hi := climb(&l, c.rate)
			if lo < c.lo || hi > c.hi {
				t.Errorf("the limit ends between %d and %d, want %s (%d to %d)", lo, hi, c.explain, c.lo, c.hi)
			}
		})
	}
}

func TestFixedLimitStays(t *testing.T) {
	l := newLimit(5, 2)
	if lo, hi := climb(&l, func(n int) float64 { return float64(n) }); lo != 5 || hi != 5 {
		t.Errorf("the limit was between %d and %d, want 5", lo, hi)
	}
}

func TestRateWithoutWaitingCallersIsNotMeasured(t *testing.T) {
	l := newLimit(0, 2)
	now := time.Unix(1e9, 0)
	for range 1000 {
		now = now.Add(time.Second)
		if l.completed(now, false) {
			t.Fatal("the limit changed")
		}
	}
}
