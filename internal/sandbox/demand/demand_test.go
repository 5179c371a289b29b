package demand

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// unitCost is a cost function in which each sandbox costs 1.
func unitCost(string) int64 { return 1 }

func (b *Counter) counts(at time.Time, budget int64) map[string]int {
	out := map[string]int{}
	for _, s := range b.Shares(at, budget, unitCost) {
		out[s.Kind] = s.Count
	}
	return out
}

func TestSingleCreationIsNoDemand(t *testing.T) {
	var b Counter
	if got := b.counts(start, 100); len(got) != 0 {
		t.Errorf("shares without creations: got %v, want none", got)
	}
	b.Add("a", start)
	if got := b.counts(start, 100); len(got) != 0 {
		t.Errorf("shares after one creation: got %v, want none", got)
	}
	b.Add("a", start.Add(time.Minute))
	if got := b.counts(start.Add(time.Minute), 100); got["a"] != 1 {
		t.Errorf("after two in a minute: %v", got)
	}
	if got := b.counts(start.Add(time.Hour), 100); len(got) != 0 || b.Known("a") {
		t.Errorf("an hour later: %v, known %t", got, b.Known("a"))
	}
}

func TestBurstsAreRemembered(t *testing.T) {
	var b Counter
	for range 10 {
		b.Add("a", start)
	}
	if got := b.counts(start.Add(time.Second), 100); got["a"] != 10 {
		t.Errorf("after a burst of 10: %v", got)
	}
	if got := b.counts(start.Add(5*time.Minute), 100); got["a"] != 5 {
		t.Errorf("one half-life later: got %v, want 5", got)
	}
	for range 1000 {
		b.Add("a", start.Add(5*time.Minute))
	}
	if got := b.counts(start.Add(5*time.Minute), 1000); got["a"] != MaxEach {
		t.Errorf("after a burst of 1000: %v", got)
	}
	// Creations one after the other need only as many sandboxes as fall into one burst.
	var slow Counter
	at := start
	for range 1000 {
		at = at.Add(500 * time.Millisecond)
		slow.Add("a", at)
	}
	if got := slow.counts(at, 100); got["a"] < 1 || got["a"] > 3 {
		t.Errorf("two creations per second: got %v, want 1 to 3", got)
	}
}

func TestFloorsComeFirst(t *testing.T) {
	var b Counter
	b.Floor([]string{"first", "second"})
	for range 20 {
		b.Add("hot", start)
	}
	for range 3 {
		b.Add("warm", start)
	}
	for budget, want := range map[int64]string{
		0: "[]", 1: "[{first 1}]", 2: "[{first 1} {second 1}]", 3: "[{first 1} {second 1} {hot 1}]",
		5: "[{first 1} {second 1} {hot 2} {warm 1}]", 10: "[{first 1} {second 1} {hot 5} {warm 3}]", 1000: "[{first 1} {second 1} {hot 20} {warm 3}]",
	} {
		if got := fmt.Sprint(b.Shares(start, budget, unitCost)); got != want {
			t.Errorf("with %d: %s, want %s", budget, got, want)
		}
	}
	// Other demand for a floor kind counts too.
	b.Add("first", start)
	b.Add("first", start)
	if got := b.counts(start, 1000); got["first"] != 2 {
		t.Errorf("floor kind with demand: got %v, want 2", got)
	}
	// A kind without cost is not counted, because the number of its sandboxes would have no limit.
	if got := b.Shares(start, 100, func(string) int64 { return 0 }); len(got) != 0 {
		t.Errorf("shares of kinds without cost: got %v, want none", got)
	}
}

func TestKindsAndTotalAreLimited(t *testing.T) {
	var b Counter
	b.Add("kept", start)
	b.Add("kept", start)
	for n := range 10_000 {
		b.Add(fmt.Sprint("kind", n), start)
	}
	if len(b.kinds) > maxKinds || !b.Known("kept") {
		t.Errorf("%d kinds, the one in use known %t", len(b.kinds), b.Known("kept"))
	}
	total := 0
	for n := range 10 {
		for range 100 {
			b.Add(fmt.Sprint("hot", n), start)
		}
	}
	for _, s := range b.Shares(start, 1<<40, unitCost) {
		total += s.Count
	}
	if total != MaxTotal {
		t.Errorf("got %d sandboxes in total, want %d", total, MaxTotal)
	}
}

func TestBudget(t *testing.T) {
	const gib = 1 << 30
	roomy := Memory{Total: 24 * gib, Available: 20 * gib}
	for name, tc := range map[string]struct {
		fixed int64
		m     Memory
		used  int64
		want  int64
	}{
		"a share":           {0, roomy, 0, 20 * gib / 100 * 10},
		"used counts":       {0, roomy, gib, 21 * gib / 100 * 10},
		"fixed":             {gib, roomy, 0, gib},
		"fixed, too much":   {100 * gib, roomy, 0, 10 * gib},
		"scarce":            {gib, Memory{Total: 24 * gib, Available: gib}, 0, 0},
		"stalled":           {gib, Memory{Total: 24 * gib, Available: 20 * gib, Stalled: 15}, 0, 0},
		"nothing is known":  {0, Memory{}, 0, 0},
		"fixed and unknown": {gib, Memory{}, 0, 0},
	} {
		g := Gauge{Fixed: tc.fixed}
		if got := g.Budget(tc.m, tc.used, start); got != tc.want {
			t.Errorf("%s: got a budget of %d, want %d", name, got, tc.want)
		}
	}
}

func TestBudgetReturnsAfterPressure(t *testing.T) {
	roomy := Memory{Total: 100, Available: 50}
	pressed := roomy
	pressed.Stalled = 50
	var g Gauge
	var got []int64
	for _, step := range []struct {
		m     Memory
		after time.Duration
	}{{roomy, 0}, {pressed, time.Second}, {roomy, 2 * time.Second}, {roomy, 30 * time.Second}, {roomy, 32 * time.Second}} {
		got = append(got, g.Budget(step.m, 50, start.Add(step.after)))
	}
	if want := []int64{10, 0, 0, 0, 10}; !slices.Equal(got, want) {
		t.Errorf("budgets: got %v, want %v", got, want)
	}
}
