package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// listedTests is the number of slowest tests in the report.
const listedTests = 10

// module is the prefix that the report removes from package names.
const module = "github.com/crannog/crannog/"

// report prints the slowest tests and programs of a run and the total usage. It returns 1 if the
// total exceeds the budget. A budget of 0 means no limit.
func report(out io.Writer, log timesLog, budget float64) (int, error) {
	list, err := log.entries()
	if err != nil {
		return 1, err
	}
	// The calibration is repeated at the end, because the machine's speed may have changed.
	seconds, err := calibrate()
	if err != nil {
		return 1, err
	}
	return summary(out, append(list, entry{Kind: kindCalibration, Processor: seconds}), budget)
}

// summary prints the report of the given entries.
func summary(out io.Writer, list []entry, budget float64) (int, error) {
	byKind := map[string][]entry{}
	for _, e := range list {
		e.Package = strings.TrimPrefix(e.Package, module)
		byKind[e.Kind] = append(byKind[e.Kind], e)
	}
	if len(byKind[kindProgram]) == 0 {
		return 1, errors.New("no test program was measured: all results were cached, or none ran")
	}
	tests := byKind[kindTest]
	slices.SortStableFunc(tests, func(a, b entry) int { return cmp.Compare(b.Wall, a.Wall) })
	fmt.Fprintf(out, "\nThe slowest of %d tests (%d skipped):\n", len(tests), len(byKind[kindSkipped]))
	for _, e := range tests[:min(listedTests, len(tests))] {
		fmt.Fprintf(out, "%9.1f s  %s %s\n", e.Wall, e.Package, e.Name)
	}
	programs := byKind[kindProgram]
	slices.SortStableFunc(programs, func(a, b entry) int { return cmp.Compare(b.Processor, a.Processor) })
	fmt.Fprintf(out, "The most expensive of %d test programs (processor time, wall time):\n", len(programs))
	var total, wall float64
	for i, e := range programs {
		total += e.Processor
		wall += e.Wall
		if i < listedTests {
			fmt.Fprintf(out, "%9.1f s %7.1f s  %s\n", e.Processor, e.Wall, e.Name)
		}
	}
	fmt.Fprintf(out, "Total: %.1f s of processor time; sum of the programs' wall times, some of which ran at once: %.1f s.\n", total, wall)
	return compareBudget(out, total, byKind[kindCalibration], budget)
}

// compareBudget compares the total with the budget, in units of the calibration.
func compareBudget(out io.Writer, total float64, calibrations []entry, budget float64) (int, error) {
	var unit float64
	for _, e := range calibrations {
		unit += e.Processor / float64(len(calibrations))
	}
	if unit <= 0 {
		return 1, errors.New("the machine's speed was not measured")
	}
	fmt.Fprintf(out, "That is %.0f times the calibration's %.2f s", total/unit, unit)
	switch {
	case budget == 0:
		fmt.Fprintln(out, ".")
	case total/unit <= budget:
		fmt.Fprintf(out, "; the budget is %g.\n", budget)
	default:
		fmt.Fprintf(out, ", above the budget of %g.\n", budget)
		return 1, nil
	}
	return 0, nil
}
