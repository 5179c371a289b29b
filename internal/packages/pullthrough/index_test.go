package pullthrough

import (
	"strconv"
	"testing"
)

type weight int

func (w weight) Weight() int { return int(w) }

// However many documents there are, their weight has a limit.
func TestIndexesAreBoundedByWeight(t *testing.T) {
	var w weighedIndexes
	for n := range 1000 {
		w.keep(strconv.Itoa(n), weight(maxWeight/100))
		w.keep("same", weight(n))
		sum := 0
		for _, i := range w.all {
			sum += i.Weight()
		}
		if sum != w.total || w.total > maxWeight {
			t.Fatalf("after %d documents: the weight is %d, and counted as %d", n, sum, w.total)
		}
	}
	if len(w.all) < 90 {
		t.Errorf("only %d documents are remembered", len(w.all))
	}
	before := len(w.all)
	if w.keep("large", weight(maxWeight+1)); len(w.all) != before {
		t.Error("a document beyond the limit is remembered, or has displaced others")
	}
}
