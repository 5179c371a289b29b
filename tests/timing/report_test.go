package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// run3 used 30 s where the calibration used 2 s.
var run3 = []entry{
	{Kind: kindCalibration, Processor: 1.5},
	{Kind: kindTest, Package: module + "a", Name: "TestShort", Wall: 1},
	{Kind: kindTest, Package: module + "b", Name: "TestLong", Wall: 7},
	{Kind: kindSkipped, Package: module + "b", Name: "TestNot"},
	{Kind: kindProgram, Name: "a", Processor: 10, Wall: 2},
	{Kind: kindProgram, Name: "b", Processor: 20, Wall: 8},
	{Kind: kindCalibration, Processor: 2.5},
}

func TestTheBudgetIsAMultipleOfTheCalibration(t *testing.T) {
	for budget, want := range map[float64]int{0: 0, 15: 0, 14: 1} {
		var out strings.Builder
		code, err := summary(&out, run3, budget)
		if err != nil || code != want {
			t.Errorf("budget %v: %d, %v\n%s", budget, code, err, out.String())
		}
		if long, short := strings.Index(out.String(), "b TestLong"), strings.Index(out.String(), "a TestShort"); long < 0 || short < long {
			t.Errorf("the slowest is not first:\n%s", out.String())
		}
		if !strings.Contains(out.String(), "Total: 30.0 s") || !strings.Contains(out.String(), "(1 skipped)") {
			t.Errorf("%s", out.String())
		}
	}
}

// A budget without a measurement must not pass.
func TestNothingMeasuredIsAnError(t *testing.T) {
	for name, list := range map[string][]entry{"no program": run3[:4], "no calibration": run3[1:6]} {
		if code, err := summary(&strings.Builder{}, list, 100); err == nil || code == 0 {
			t.Errorf("%s: %d, %v", name, code, err)
		}
	}
	if _, err := timesLog(filepath.Join(t.TempDir(), "none")).entries(); err == nil {
		t.Error("a log that is not there was read")
	}
}

func TestEntriesAreReadAsTheyWereWritten(t *testing.T) {
	log := timesLog(filepath.Join(t.TempDir(), "times"))
	for _, e := range run3 {
		if err := log.add(e); err != nil {
			t.Fatal(err)
		}
	}
	list, err := log.entries()
	if err != nil || len(list) != len(run3) {
		t.Fatalf("%+v, %v", list, err)
	}
	for i, e := range run3 {
		if list[i] != e {
			t.Errorf("%+v, written %+v", list[i], e)
		}
	}
}
