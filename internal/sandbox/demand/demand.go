// Package demand owns the decision how many sandboxes of each kind should be warm. It counts
// requests, reduces old counts over time, and divides a memory budget. It creates nothing and has
// no clock.
package demand

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	// halfLife is the time in which half of the counted demand is forgotten.
	halfLife = 5 * time.Minute
	// burst is the time within which creations count as one burst: about as long as it takes to
	// make a few more sandboxes.
	burst = time.Second
	// minHeat is the minimum recent demand for a kind to count. A single request is not enough,
	// because it may be the only one.
	minHeat = 1.5
	// cold is the demand below which the counts of a kind are dropped.
	cold = 0.2
)

// Limits of the number of ready sandboxes, whatever the budget, and of the number of counted kinds:
// a caller may request another kind each time.
const (
	MaxEach  = 32
	MaxTotal = 128
	maxKinds = 64
)

// Counter counts demand by kind. It is not safe for concurrent use.
type Counter struct {
	kinds  map[string]*entry
	floors []string
}

type entry struct {
	at   time.Time
	heat float64 // creations, fading with halfLife
	now  float64 // creations, fading with burst
	peak float64 // the greatest value of now, fading with halfLife
}

// fade reduces the counts by the time since the last call.
func (e *entry) fade(at time.Time) {
	d := max(0, at.Sub(e.at))
	e.at = at
	decay := math.Exp2(-float64(d) / float64(halfLife))
	e.heat *= decay
	e.now *= math.Exp(-float64(d) / float64(burst))
	e.peak = max(e.peak*decay, e.now)
}

// Add counts a creation.
func (b *Counter) Add(kind string, at time.Time) {
	if b.kinds == nil {
		b.kinds = make(map[string]*entry)
	}
	e := b.kinds[kind]
	if e == nil {
		b.forget(at)
		e = &entry{at: at}
		b.kinds[kind] = e
	}
	e.fade(at)
	e.heat++
	e.now++
	e.peak = max(e.peak, e.now)
}

// Floor names the kinds of which at least one is always worth having, in order of priority.
func (b *Counter) Floor(kinds []string) { b.floors = slices.Clone(kinds) }

// Forget drops the counts of a kind that will not be requested again.
func (b *Counter) Forget(kind string) { delete(b.kinds, kind) }

// Known reports whether a kind still counts.
func (b *Counter) Known(kind string) bool {
	return b.kinds[kind] != nil || slices.Contains(b.floors, kind)
}

// forget drops cold kinds, and the coldest if there are too many.
func (b *Counter) forget(at time.Time) {
	var coldest string
	lowest := math.Inf(1)
	for kind, e := range b.kinds {
		e.fade(at)
		if e.heat < cold {
			delete(b.kinds, kind)
		} else if e.heat < lowest {
			coldest, lowest = kind, e.heat
		}
	}
	if len(b.kinds) >= maxKinds {
		delete(b.kinds, coldest)
	}
}

// Share is how many sandboxes of one kind should be ready.
type Share struct {
	Kind  string
	Count int
}

// Shares divides a budget. First it gives one sandbox to each kind: the kinds of floors first, then
// the others by demand. Then it gives more to the kinds that bursts most likely need. The result is
// in the order in which to create them. The cost of a kind must be positive.
func (b *Counter) Shares(at time.Time, budget int64, cost func(kind string) int64) []Share {
	b.forget(at)
	type candidate struct {
		Share
		limit int
		heat  float64
	}
	var candidates []candidate
	for _, kind := range b.floors {
		candidates = append(candidates, candidate{Share: Share{Kind: kind}, limit: 1, heat: math.Inf(1)})
	}
	for kind, e := range b.kinds {
		if e.heat < minHeat {
			continue
		}
		limit := min(MaxEach, max(1, int(math.Round(e.peak))))
		if i := slices.IndexFunc(candidates, func(w candidate) bool { return w.Kind == kind }); i >= 0 {
			candidates[i].limit = limit
		} else {
			candidates = append(candidates, candidate{Share: Share{Kind: kind}, limit: limit, heat: e.heat})
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.heat, a.heat), cmp.Compare(b.limit, a.limit))
	})
	total := 0
	for round, added := 0, true; added; round++ {
		added = false
		for i := range candidates {
			w := &candidates[i]
			price := cost(w.Kind)
			if w.Count != round || w.Count >= w.limit || total >= MaxTotal || price <= 0 || price > budget {
				continue
			}
			budget -= price
			w.Count++
			total++
			added = true
		}
	}
	var out []Share
	for _, w := range candidates {
		if w.Count > 0 {
			out = append(out, w.Share)
		}
	}
	return out
}
