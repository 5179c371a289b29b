package gvisor

import (
	"testing"
	"testing/synctest"
	"time"
)

// While timers are late the function is not called. Afterwards it is called once.
func TestRunWhenIdleWaitsWhileTimersAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		delay := 5 * time.Millisecond // of every second reading of the clock
		readings := 0
		now := func() time.Time {
			if readings++; readings%2 == 0 {
				return time.Now().Add(delay)
			}
			return time.Now()
		}
		var calls []time.Duration
		runWhenIdle(now, time.Second, func() { calls = append(calls, time.Since(started)) })
		time.Sleep(time.Second + 2*recheckPause)
		synctest.Wait()
		if len(calls) != 0 {
			t.Fatalf("the function was called after %v, while timers were late", calls)
		}
		delay = time.Millisecond
		time.Sleep(time.Minute)
		if len(calls) != 1 || calls[0] != time.Second+3*recheckPause {
			t.Errorf("the function was called after %v, want once after %v", calls, time.Second+3*recheckPause)
		}
	})
}
