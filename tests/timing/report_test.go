package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// exampleRun is a run that used 30 s, and whose calibrations used 2 s on average.
var exampleRun = []entry{
	{Kind: kindCalibration, Processor: 1.5},
	{Kind: kindTest, Package: module + "a", Name: "TestShort", Wall: 1},
	{Kind: kindTest, Package: module + "b", Name: "TestLong", Wall: 7},
	{Kind: kindSkipped, Package: module + "b", Name: "TestNot"},
	{Kind: kindProgram, Name: "a", Processor: 10, Wall: 2},
	{Kind: kindProgram, Name: "b", Processor: 20, Wall: 8},
	{Kind: kindCalibration, Processor: 2.5},
}

func TestBudgetIsMultipleOfCalibration(t *testing.T) {
	for budget, want := range map[float64]int{0: 0, 15: 0, 14: 1} {
		var out strings.Builder
		code, err := summary(&out, exampleRun, budget)
		if err != nil || code != want {
			t.Errorf("budget %v: %d, %v\n%s", budget, code, err, out.String())
		}
		if long, short := strings.Index(out.String(), "b TestLong"), strings.Index(out.String(), "a TestShort"); long < 0 || short < long {
			t.Errorf("the slowest test is not first:\n%s", out.String())
		}
		if !strings.Contains(out.String(), "Total: 30.0 s") || !strings.Contains(out.String(), "(1 skipped)") {
			t.Errorf("the total or the skipped tests are missing:\n%s", out.String())
		}
	}
}

// TestSummaryRejectsMissingMeasurements checks that a budget cannot pass without measurements.
func TestSummaryRejectsMissingMeasurements(t *testing.T) {
	for name, list := range map[string][]entry{"no program": exampleRun[:4], "no calibration": exampleRun[1:6]} {
		if code, err := summary(&strings.Builder{}, list, 100); err == nil || code == 0 {
			t.Errorf("summary with %s: got %d, %v, want an error", name, code, err)
		}
	}
	if _, err := timesLog(filepath.Join(t.TempDir(), "none")).entries(); err == nil {
		t.Error("entries read a missing log")
	}
}

func TestEntriesRoundTrip(t *testing.T) {
	log := timesLog(filepath.Join(t.TempDir(), "times"))
	for _, e := range exampleRun {
		if err := log.add(e); err != nil {
			t.Fatal(err)
		}
	}
	list, err := log.entries()
	if err != nil || len(list) != len(exampleRun) {
		t.Fatalf("read the log: got %+v, %v", list, err)
	}
	for i, e := range exampleRun {
		if list[i] != e {
			t.Errorf("read the entry %+v, want %+v", list[i], e)
		}
	}
}
