package hosttest

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestSlownessIsBounded(t *testing.T) {
	for took, want := range map[time.Duration]float64{
		0: 1, reference / 2: 1, reference: 1, 3 * reference: 3, maxSlowness * reference: maxSlowness, time.Hour: maxSlowness,
	} {
		if got := slownessOf(took); got != want {
			t.Errorf("the slowness after a measurement of %s is %v, want %v", took, got, want)
		}
	}
	if s := Slowness(); s < 1 || s > maxSlowness || Patience(time.Minute) < time.Minute || Patience(Hang) != time.Duration(float64(Hang)*s) {
		t.Errorf("Slowness is %v, and Patience of one minute is %s", s, Patience(time.Minute))
	}
}

// The clock of a synctest bubble stands still during work. A measurement with it would find any
// machine infinitely fast.
func TestMeasureInSynctestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		if took := measure(); took <= 0 {
			t.Errorf("the work took %s", took)
		}
		if passed := time.Since(started); passed != 0 {
			t.Errorf("%s passed in the bubble", passed)
		}
	})
}

// recorder records the failure of a test without ending the test that observes it.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(string, ...any) {
	r.failed = true
	runtime.Goexit()
}

func TestWaitsFailAfterHang(t *testing.T) {
	for name, wait := range map[string]func(t testing.TB, done func() bool){
		"Eventually": func(t testing.TB, done func() bool) { Eventually(t, "done", done) },
		"EventuallyNoError": func(t testing.TB, done func() bool) {
			EventuallyNoError(t, func() error {
				if done() {
					return nil
				}
				return errors.New("not done")
			})
		},
		"EventuallyAtMost": func(t testing.TB, done func() bool) {
			EventuallyAtMost(t, "things", 3, func() int {
				if done() {
					return 3
				}
				return 4
			})
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			for _, finishes := range []bool{true, false} {
				started, r, ended := time.Now(), &recorder{TB: t}, make(chan struct{})
				go func() {
					defer close(ended)
					wait(r, func() bool { return finishes && time.Since(started) > Hang/2 })
				}()
				<-ended
				if r.failed == finishes {
					t.Errorf("%s: the event happens: %t, the wait failed: %t", name, finishes, r.failed)
				}
				if took := time.Since(started); finishes != (took < Patience(Hang)) {
					t.Errorf("%s: the wait took %s", name, took)
				}
			}
		})
	}
}
