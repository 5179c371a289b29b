package hosttest

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheFactorIsBounded(t *testing.T) {
	for took, want := range map[time.Duration]float64{
		0: 1, reference / 2: 1, reference: 1, 3 * reference: 3, slowest * reference: slowest, time.Hour: slowest,
	} {
		if got := factor(took); got != want {
			t.Errorf("%s: %v, not %v", took, got, want)
		}
	}
	if s := Slowness(); s < 1 || s > slowest || Patience(time.Minute) < time.Minute || Patience(Hang) != time.Duration(float64(Hang)*s) {
		t.Errorf("a factor of %v, and a minute is %s", s, Patience(time.Minute))
	}
}

// The clock of a bubble stops during the work, so that a measurement with it would find any machine
// infinitely fast.
func TestMeasuringInABubble(t *testing.T) {
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

func TestWhatHangsFails(t *testing.T) {
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
		"NoMore": func(t testing.TB, done func() bool) {
			NoMore(t, "things", 3, func() int {
				if done() {
					return 3
				}
				return 4
			})
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			for _, holds := range []bool{true, false} {
				started, r, ended := time.Now(), &recorder{TB: t}, make(chan struct{})
				go func() {
					defer close(ended)
					wait(r, func() bool { return holds && time.Since(started) > Hang/2 })
				}()
				<-ended
				if r.failed == holds {
					t.Errorf("%s: what holds is %t, and it failed is %t", name, holds, r.failed)
				}
				if took := time.Since(started); holds != (took < Patience(Hang)) {
					t.Errorf("%s: it waited for %s", name, took)
				}
			}
		})
	}
}
