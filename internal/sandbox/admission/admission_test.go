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

// begin admits one caller, which must not have to wait.
func begin(t *testing.T, q *Queue, key string) *Turn {
	t.Helper()
	turn, err := q.Admit(t.Context(), Ask{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// serve runs one start of that duration.
func serve(t *testing.T, q *Queue, d time.Duration) {
	t.Helper()
	turn := begin(t, q, "first")
	time.Sleep(d) // of the synctest bubble's clock
	turn.Done(true)
}

func TestAtMostAsManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{AtOnce: 3})
		var mu sync.Mutex
		now, maximum, served := 0, 0, 0
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() {
				turn, err := q.Admit(t.Context(), Ask{Key: "a"})
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
	busy := begin(t, q, "busy")
	var mu sync.Mutex
	var group sync.WaitGroup
	for i, key := range keys {
		group.Go(func() {
			turn, err := q.Admit(t.Context(), Ask{Key: key, Label: fmt.Sprint(i)})
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

func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{AtOnce: 2})
		serve(t, q, time.Second)
		first, second := begin(t, q, "a"), begin(t, q, "a")
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for i, key := range []string{"a", "a", "a", "b", "b"} {
			group.Go(func() {
				if _, err := q.Admit(ctx, Ask{Key: key, Label: fmt.Sprint(i), Sandbox: "s"}); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
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
				t.Errorf("%+v, want place %d", p, want[p.Label])
			}
		}
		if own := q.Positions("b", false); len(own) != 2 {
			t.Errorf("b sees %d places, want its own 2", len(own))
		}
		// A new key comes after the first caller of each other key, so it has the third place.
		if s := q.Status(); s.Waiting != 5 || s.Starting != 2 || s.AtOnce != 2 || s.Wait != 1500*time.Millisecond {
			t.Errorf("status %+v", s)
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
		turn := begin(t, q, "a")
		var group sync.WaitGroup
		for _, key := range []string{"a", "a", "b", "c"} {
			group.Go(func() { _, _ = q.Admit(ctx, Ask{Key: key}) })
			synctest.Wait()
			if key == "b" {
				// One key may fill at most half of the queue, so that others find room.
				overloaded(t.Context(), t, q, "a")
			}
		}
		started := time.Now()
		overloaded(t.Context(), t, q, "d")
		group.Go(func() { _, _ = q.Admit(ctx, Ask{Key: "d", Always: true}) })
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

func overloaded(ctx context.Context, t *testing.T, q *Queue, key string) {
	t.Helper()
	_, err := q.Admit(ctx, Ask{Key: key})
	if fault.KindOf(err) != fault.Exhausted || fault.CodeOf(err) != CodeOverloaded || fault.RetryAfter(err) < time.Second {
		t.Errorf("got %v, retry after %s", err, fault.RetryAfter(err))
	}
}

func TestDeadlineThatCannotBeMetIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{AtOnce: 1, MaxWait: time.Minute})
		serve(t, q, 10*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		turn := begin(t, q, "a")
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() { _, _ = q.Admit(ctx, Ask{Key: "a"}) })
		}
		synctest.Wait()
		late, stop := context.WithTimeout(ctx, 29*time.Second)
		overloaded(late, t, q, "a") // third: 30 s
		stop()
		enough, stop := context.WithTimeout(ctx, 31*time.Second)
		group.Go(func() { _, _ = q.Admit(enough, Ask{Key: "a"}) })
		synctest.Wait()
		for range 3 {
			group.Go(func() { _, _ = q.Admit(ctx, Ask{Key: "a"}) })
		}
		synctest.Wait()
		overloaded(ctx, t, q, "a") // seventh: 70 s
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
		a, b := begin(t, q, "a"), begin(t, q, "a")
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
		a = begin(t, q, "a")
		go func() { _, _ = q.Admit(ctx, Ask{Key: "a"}) }()
		synctest.Wait()
		if q.Try() != nil {
			t.Error("background work before a caller that waits")
		}
		cancel()
		synctest.Wait()
		a.Done(true)
		b.Done(true)
		if s := q.Status(); s.Starting != 0 || s.Background != 0 {
			t.Errorf("at the end %+v", s)
		}
	})
}

func TestStartThatStandsStillGivesItsPlaceAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{AtOnce: 1})
		serve(t, q, time.Second)
		stuck := begin(t, q, "attacker")
		started := time.Now()
		other := begin(t, q, "a")
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

func TestWhoLeavesWhenItsTurnComesPassesItOn(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			q := New(Options{AtOnce: 1})
			turn := begin(t, q, "a")
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			group.Go(func() {
				if turn, err := q.Admit(ctx, Ask{Key: "a"}); err == nil {
					turn.Done(false)
				}
			})
			synctest.Wait()
			group.Go(cancel)
			group.Go(func() { turn.Done(true) })
			group.Wait()
			begin(t, q, "a").Done(true)
		})
	}
}
