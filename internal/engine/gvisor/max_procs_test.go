package gvisor

import (
	"testing"
	"testing/synctest"
	"time"
)

// While timers are late the function is not called. Afterwards it is called once.
func TestWhenCalm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		behind := 5 * time.Millisecond // of every second reading of the clock
		looks := 0
		now := func() time.Time {
			if looks++; looks%2 == 0 {
				return time.Now().Add(behind)
			}
			return time.Now()
		}
		var done []time.Duration
		runWhenIdle(now, time.Second, func() { done = append(done, time.Since(started)) })
		time.Sleep(time.Second + 2*recheck)
		synctest.Wait()
		if len(done) != 0 {
			t.Fatalf("done after %v, when timers were late", done)
		}
		behind = time.Millisecond
		time.Sleep(time.Minute)
		if len(done) != 1 || done[0] != time.Second+3*recheck {
			t.Errorf("done after %v", done)
		}
	})
}
