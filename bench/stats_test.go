package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"time"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestPercentile(t *testing.T) {
	for _, c := range []struct {
		in   series
		p    float64
		want float64
	}{
		{nil, 0.5, 0},
		{series{7}, 0.95, 7},
		{series{3, 1, 2}, 0.5, 2},
		{series{4, 1, 3, 2}, 0.5, 2.5},
		{series{10, 20, 30, 40, 50}, 0.95, 48},
		{series{5, 1}, 0, 1},
		{series{5, 1}, 1, 5},
	} {
		if got := c.in.percentile(c.p); !near(got, c.want) {
			t.Errorf("percentile %[2]v of %[1]v: got %[3]v, want %[4]v", c.in, c.p, got, c.want)
		}
	}
	s := series{3, 1, 2}
	s.p50()
	if !slices.Equal(s, series{3, 1, 2}) {
		t.Errorf("p50 changed the order of the series: %v", s)
	}
}

func TestRate(t *testing.T) {
	if got := rate(50_000_000, 2*time.Second); !near(got, 25) {
		t.Errorf("rate of 50 MB in 2 s: got %v, want 25", got)
	}
	if got := rate(1, 0); got != 0 {
		t.Errorf("rate without time: got %v, want 0", got)
	}
}

func TestScoresFromManyGoroutines(t *testing.T) {
	s := newScores()
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() { s.add("a", 1) })
	}
	group.Wait()
	if len(s.by["a"]) != 50 || !slices.Equal(s.order, []string{"a"}) {
		t.Errorf("concurrent additions: got the names %v and %d values, want one name and 50", s.order, len(s.by["a"]))
	}
}

// TestRace checks that every contender runs once a round, that the warm-up round is not counted,
// and that each contender is first in turn.
func TestRace(t *testing.T) {
	var calls []string
	one := func(name string) contender {
		return contender{name, func(_ context.Context, s *scores) error {
			calls = append(calls, name)
			s.add(name, float64(len(calls)))
			return nil
		}}
	}
	s, err := race(t.Context(), 3, one("a"), one("b"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "a", "b", "b", "a", "a", "b"}; !slices.Equal(calls, want) {
		t.Errorf("got the order %v, want %v", calls, want)
	}
	if len(s.by["a"]) != 3 || len(s.by["b"]) != 3 || slices.Contains(s.by["a"], 1) {
		t.Errorf("counted %v", s.by)
	}
}

func TestRaceStopsAtAnError(t *testing.T) {
	bad := errors.New("bad")
	_, err := race(t.Context(), 3, contender{"x", func(context.Context, *scores) error { return bad }})
	if !errors.Is(err, bad) {
		t.Errorf("a contender that fails: got %v, want its error", err)
	}
}

func TestTogether(t *testing.T) {
	var mu sync.Mutex
	n := 0
	_, failed := together(10, func() error {
		mu.Lock()
		defer mu.Unlock()
		if n++; n%2 == 0 {
			return errors.New("even")
		}
		return nil
	})
	if n != 10 || len(failed) != 5 {
		t.Errorf("got %d runs and %d failures, want 10 and 5", n, len(failed))
	}
}
