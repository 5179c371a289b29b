package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// admit admits one caller, which must not have to wait.
func admit(t *testing.T, q *Queue, key string) *Turn {
	t.Helper()
	turn, err := q.Admit(t.Context(), Request{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// serve runs one start of that duration.
func serve(t *testing.T, q *Queue, d time.Duration) {
	t.Helper()
	turn := admit(t, q, "first")
	time.Sleep(d) // on the fake clock of synctest
	turn.Done(true)
}

func TestQueueLimitsConcurrentStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{AtOnce: 3})
		var mu sync.Mutex
		now, maximum, served := 0, 0, 0
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() {
				turn, err := q.Admit(t.Context(), Request{Key: "a"})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				now++
				maximum = max(maximum, now)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				now--
				served++
				mu.Unlock()
				turn.Done(true)
			})
		}
		started := time.Now()
		group.Wait()
		if maximum != 3 || served != 100 {
			t.Errorf("%d at once and %d served, want 3 and 100", maximum, served)
		}
		if took := time.Since(started); took != 34*time.Second {
			t.Errorf("100 starts of a second, three at once, took %s, want 34s", took)
		}
	})
}

// order admits callers of these keys, one after the other, while the queue is busy, and returns the
// order in which they are served.
func order(t *testing.T, q *Queue, keys ...string) (served []string) {
	t.Helper()
	busy := admit(t, q, "busy")
	var mu sync.Mutex
	var group sync.WaitGroup
	for i, key := range keys {
		group.Go(func() {
			turn, err := q.Admit(t.Context(), Request{Key: key, Label: fmt.Sprint(i)})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			served = append(served, fmt.Sprintf("%s%d", key, i))
			mu.Unlock()
			turn.Done(true)
		})
		synctest.Wait()
	}
	busy.Done(true)
	group.Wait()
	return served
}

func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := order(t, New(Options{AtOnce: 1}), "a", "a", "a", "a")
		if want := []string{"a0", "a1", "a2", "a3"}; !slices.Equal(got, want) {
			t.Errorf("served %v, want %v", got, want)
		}
	})
}

func TestKeysTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := order(t, New(Options{AtOnce: 1}), "a", "a", "a", "a", "b", "c", "b")
		if want := []string{"a0", "b4", "c5", "a1", "b6", "a2", "a3"}; !slices.Equal(got, want) {
			t.Errorf("served %v, want %v", got, want)
		}
	})
}

func TestPositionsAndStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{AtOnce: 2})
		serve(t, q, time.Second)
		first, second := admit(t, q, "a"), admit(t, q, "a")
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for i, key := range []string{"a", "a", "a", "b", "b"} {
			group.Go(func() {
				if _, err := q.Admit(ctx, Request{Key: key, Label: fmt.Sprint(i), Sandbox: "s"}); !errors.Is(err, context.Canceled) {
					t.Errorf("got error %v, want Canceled", err)
				}
			})
			synctest.Wait()
		}
		time.Sleep(3 * time.Second)
		want := map[string]int{"0": 1, "3": 2, "1": 3, "4": 4, "2": 5}
		all := q.Positions("", true)
		if len(all) != len(want) {
			t.Fatalf("%d places, want %d", len(all), len(want))
		}
		for _, p := range all {
			if p.Number != want[p.Label] || p.Sandbox != "s" || p.Waited != 3*time.Second || p.Expected != time.Duration(p.Number)*time.Second/2 {
				t.Errorf("got place %+v, want number %d", p, want[p.Label])
			}
		}
		if own := q.Positions("b", false); len(own) != 2 {
			t.Errorf("b sees %d places, want its own 2", len(own))
		}
		// A new key comes after the first caller of each other key, so it has the third place.
		if s := q.Status(); s.Waiting != 5 || s.Starting != 2 || s.AtOnce != 2 || s.Wait != 1500*time.Millisecond {
			t.Errorf("got status %+v", s)
		}
		cancel()
		group.Wait()
		if s := q.Status(); s.Waiting != 0 || s.Totals.Left != 5 {
			t.Errorf("after all have left: %+v", s)
		}
		first.Done(true)
		second.Done(true)
	})
}

func TestFullQueueRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{AtOnce: 1, MaxWaiting: 4})
		serve(t, q, 10*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		turn := admit(t, q, "a")
		var group sync.WaitGroup
		for _, key := range []string{"a", "a", "b", "c"} {
			group.Go(func() { _, _ = q.Admit(ctx, Request{Key: key}) })
			synctest.Wait()
			if key == "b" {
				// One key may fill at most half of the queue, so that others find room.
				wantOverloaded(t.Context(), t, q, "a")
			}
		}
		started := time.Now()
		wantOverloaded(t.Context(), t, q, "d")
		group.Go(func() { _, _ = q.Admit(ctx, Request{Key: "d", Always: true}) })
		synctest.Wait()
		if n := q.Status().Waiting; n != 5 {
			t.Errorf("%d wait, want 5 with the one that is never refused", n)
		}
		if took := time.Since(started); took != 0 {
			t.Errorf("the refusal took %s", took)
		}
		if s := q.Status(); s.Totals.Refused != 2 {
			t.Errorf("%d refused, want 2", s.Totals.Refused)
		}
		cancel()
		group.Wait()
		turn.Done(true)
	})
}

// wantOverloaded checks that Admit refuses a caller at once.
func wantOverloaded(ctx context.Context, t *testing.T, q *Queue, key string) {
	t.Helper()
	_, err := q.Admit(ctx, Request{Key: key})
	if fault.KindOf(err) != fault.Exhausted || fault.CodeOf(err) != CodeOverloaded || fault.RetryAfter(err) < time.Second {
		t.Errorf("got %v, retry after %s", err, fault.RetryAfter(err))
	}
}

func TestDeadlineThatCannotBeMetIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{AtOnce: 1, MaxWait: time.Minute})
		serve(t, q, 10*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		turn := admit(t, q, "a")
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() { _, _ = q.Admit(ctx, Request{Key: "a"}) })
		}
		synctest.Wait()
		late, stop := context.WithTimeout(ctx, 29*time.Second)
		wantOverloaded(late, t, q, "a") // third: 30 s
		stop()
		enough, stop := context.WithTimeout(ctx, 31*time.Second)
		group.Go(func() { _, _ = q.Admit(enough, Request{Key: "a"}) })
		synctest.Wait()
		for range 3 {
			group.Go(func() { _, _ = q.Admit(ctx, Request{Key: "a"}) })
		}
		synctest.Wait()
		wantOverloaded(ctx, t, q, "a") // seventh: 70 s
		if s := q.Status(); s.Waiting != 6 {
			t.Errorf("%d wait, want 6", s.Waiting)
		}
		cancel()
		stop()
		group.Wait()
		turn.Done(true)
	})
}

func TestBackgroundWorkComesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{AtOnce: 2})
		pool, second := q.Try(), q.Try()
		if pool == nil || second == nil {
			t.Fatal("an idle queue admits no background work")
		}
		if q.Try() != nil {
			t.Error("more background work than there are places")
		}
		second.Done(true)
		// Running background work does not delay a caller.
		a, b := admit(t, q, "a"), admit(t, q, "a")
		pool.Done(true)
		if q.Try() != nil {
			t.Error("background work beside as many callers as there are places")
		}
		a.Done(true)
		if pool = q.Try(); pool == nil {
			t.Error("no background work though there is a place")
		}
		pool.Done(true)
		ctx, cancel := context.WithCancel(t.Context())
		a = admit(t, q, "a")
		go func() { _, _ = q.Admit(ctx, Request{Key: "a"}) }()
		synctest.Wait()
		if q.Try() != nil {
			t.Error("background work before a caller that waits")
		}
		cancel()
		synctest.Wait()
		a.Done(true)
		b.Done(true)
		if s := q.Status(); s.Starting != 0 || s.Background != 0 {
			t.Errorf("status at the end: %+v", s)
		}
	})
}

func TestHungStartLosesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{AtOnce: 1})
		serve(t, q, time.Second)
		stuck := admit(t, q, "attacker")
		started := time.Now()
		other := admit(t, q, "a")
		if took := time.Since(started); took != minTimeout {
			t.Errorf("another key waited for %s, want %s", took, minTimeout)
		}
		stuck.Done(true)
		if s := q.Status(); s.Starting != 1 {
			t.Errorf("%d start, want 1", s.Starting)
		}
		other.Done(true)
	})
}

func TestCanceledCallerPassesItsTurnOn(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			q := New(Options{AtOnce: 1})
			turn := admit(t, q, "a")
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			group.Go(func() {
				if turn, err := q.Admit(ctx, Request{Key: "a"}); err == nil {
					turn.Done(false)
				}
			})
			synctest.Wait()
			group.Go(cancel)
			group.Go(func() { turn.Done(true) })
			group.Wait()
			admit(t, q, "a").Done(true)
		})
	}
}
