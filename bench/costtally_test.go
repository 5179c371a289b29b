package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/perfcount"
)

func titles(b *bench) []string {
	var all []string
	for _, s := range b.report.Sections {
		all = append(all, s.Title)
	}
	return all
}

// TestTally checks that each quantity has a table in the unit of its title.
func TestTally(t *testing.T) {
	tally := newTally()
	tally.add(costRun, 20*time.Millisecond, perfcount.Counts{Faults: 4000, Switches: 2501, Calls: 9, HasCalls: true, Processor: 8 * time.Millisecond})
	tally.add(costLife, 30*time.Millisecond, perfcount.Counts{Faults: 1, Switches: 2, Calls: 3, HasCalls: true, Processor: 4 * time.Millisecond})
	b := &bench{report: &report{}}
	tally.report(b)
	if len(b.report.Sections) != len(costQuantities) {
		t.Fatalf("got the tables %q, want one for each quantity", titles(b))
	}
	for i, want := range []float64{4000, 2501, 9, 8, 20} {
		sec := b.report.Sections[i]
		if r := sec.find(costRun); r == nil || r.P50 != want || sec.Unit != costQuantities[i].unit {
			t.Errorf("%s: %+v, want %v %s", sec.Title, r, want, costQuantities[i].unit)
		}
	}
	if !b.report.Sections[0].find(costRun).Reached || b.report.Sections[1].find(costRun).Reached {
		t.Errorf("targets: %+v", b.report.Sections[:2])
	}
	// 4 ms of processor time each is 250 in a second.
	if notes := b.report.Sections[3].Notes; len(notes) != 1 || !strings.Contains(notes[0], "250") {
		t.Errorf("the notes about processor time: got %q, want one with 250", notes)
	}
}

// TestTallyWithoutSystemCalls checks that a host without the tracepoint has no table of system
// calls, and that the report gives the reason.
func TestTallyWithoutSystemCalls(t *testing.T) {
	tally := newTally()
	tally.add(costCold, time.Millisecond, perfcount.Counts{Faults: 1})
	b := &bench{report: &report{}}
	tally.report(b)
	if got := titles(b); len(got) != 4 || slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "system calls") }) {
		t.Errorf("without system calls: got the tables %q, want 4", got)
	}
	if notes := b.report.Sections[2].Notes; len(notes) != 1 || !strings.Contains(notes[0], "raw_syscalls") {
		t.Errorf("without system calls: got the notes %q, want the missing tracepoint", notes)
	}
}
