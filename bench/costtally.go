package main

import (
	"fmt"
	"time"

	"github.com/crannog/crannog/internal/testkit/perfcount"
)

// costQuantities are the quantities of the group cost. Each has its own table.
var costQuantities = []struct{ title, unit string }{
	{"page faults", "faults"},
	{"context switches", "switches"},
	{"system calls", "calls"},
	{"processor time", "ms"},
	{"wall time", "ms"},
}

// tally collects the costs of operations, by quantity.
type tally struct {
	scores []*scores // in the order of costQuantities
	// uncounted is set if this host cannot count system calls.
	uncounted bool
}

func newTally() *tally {
	t := &tally{}
	for range costQuantities {
		t.scores = append(t.scores, newScores())
	}
	return t
}

func (t *tally) add(name string, took time.Duration, c perfcount.Counts) {
	t.scores[0].add(name, float64(c.Faults))
	t.scores[1].add(name, float64(c.Switches))
	if c.HasCalls {
		t.scores[2].add(name, float64(c.Calls))
	} else {
		t.uncounted = true
	}
	t.scores[3].addTime(name, c.Processor)
	t.scores[4].addTime(name, took)
}

// report adds the tables. Their targets are those of docs/internals/performance-cost.md.
func (t *tally) report(b *bench) {
	for i, q := range costQuantities {
		if i == 2 && t.uncounted {
			continue
		}
		sec := table("cost", q.title+" of one operation", q.unit, t.scores[i])
		sec.against(nameStock)
		switch i {
		case 0:
			sec.atMost(costRun, 4000)
			sec.atMost(costCold, 2500)
		case 1:
			sec.atMost(costRun, 2500)
			sec.atMost(costCold, 1500)
		case 3:
			if life := sec.find(costLife); life != nil && life.P50 > 0 {
				sec.note("created, used and removed, cold, for one second of processor time: %s", number(1000/life.P50))
			}
			if t.uncounted {
				sec.note("system calls are not shown: there is no tracefs with raw_syscalls:sys_enter")
			}
		}
		b.report.add(sec)
	}
}

func (s *section) atMost(name string, limit float64) {
	s.target(name, fmt.Sprintf("≤ %.0f", limit), func(r row) bool { return r.P50 <= limit })
}
