package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// sample returns a table of two rows.
func sample() section {
	s := newScores()
	for _, v := range []float64{10, 20, 30} {
		s.add("bare", v)
		s.add("sandbox", 2*v)
	}
	sec := table("g", "a title", "ms", s, "bare", "sandbox", "not scored")
	sec.against("bare")
	sec.target("sandbox", "≤ 1.5× bare", func(r row) bool { return r.Ratio <= 1.5 })
	return sec
}

func TestTable(t *testing.T) {
	sec := sample()
	if len(sec.Rows) != 2 {
		t.Fatalf("got %d rows, want 2: a row without a score is shown", len(sec.Rows))
	}
	sb := sec.find("sandbox")
	if sb.N != 3 || sb.P50 != 40 || sb.Ratio != 2 || sb.Baseline != "bare" || sb.Reached {
		t.Errorf("the row of the sandbox: got %+v, want a median of 40 and twice the baseline", sb)
	}
	if bare := sec.find("bare"); bare.Baseline != "" || bare.Ratio != 0 {
		t.Errorf("the baseline has a baseline: %+v", bare)
	}
}

func TestMissingBaselineGivesNoRatio(t *testing.T) {
	sec := sample()
	sec.Rows[1].Ratio, sec.Rows[1].Baseline = 0, ""
	sec.against("absent")
	if sec.find("sandbox").Ratio != 0 {
		t.Error("a row without a baseline has a ratio")
	}
}

func TestPrint(t *testing.T) {
	var out bytes.Buffer
	sec := sample()
	sec.note("a note with 1 %%")
	sec.print(&out)
	for _, want := range []string{"g: a title", "2.00× bare", "≤ 1.5× bare: missed", "a note with 1 %"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	columns := map[int]bool{}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "  b") {
			columns[len([]rune(line[:strings.Index(line, ".")]))] = true
		}
	}
	if len(columns) != 1 {
		t.Errorf("the columns do not line up:\n%s", out.String())
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0.1234: "0.12", 9.999: "10.00", 12.34: "12.3", 1234.5: "1234"} {
		if got := number(v); got != want {
			t.Errorf("number(%v): got %s, want %s", v, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	f, err := parse([]string{"-only", "exec,create", "-n", "7", "-json"}, io.Discard)
	if err != nil || f.n != 7 || !f.json || len(f.selectedGroups()) != 2 {
		t.Errorf("parse: got %+v, %v", f, err)
	}
	for _, bad := range [][]string{{"-only", "nothing"}, {"-n", "0"}, {"-crowd", "0"}, {"word"}, {"-n", "x"}} {
		if _, err := parse(bad, io.Discard); err == nil {
			t.Errorf("parse accepted %v", bad)
		}
	}
	if f, _ := parse(nil, io.Discard); len(f.selectedGroups()) != len(groups) {
		t.Errorf("without -only: %v", f.selectedGroups())
	}
	if n := (flags{n: 2}).fewer(4); n != 2 {
		t.Errorf("fewer with -n 2: got %d, want 2", n)
	}
	if n := (flags{n: 20}).fewer(4); n != 5 {
		t.Errorf("fewer with -n 20: got %d, want 5", n)
	}
}

// TestTails checks that a 99th percentile of zero is shown, and that one of too few values is shown
// only if requested.
func TestTails(t *testing.T) {
	s := newScores()
	for i := range minForP99 {
		s.add("many", float64(i))
		if i%20 == 0 {
			s.add("few", 7)
			s.add("none left", 0)
		}
	}
	last := func(name string) string {
		var out bytes.Buffer
		sec := table("g", "a title", "MB", s, "many", name)
		if name != "many" {
			sec.tails99(s)
		}
		sec.print(&out)
		for line := range strings.Lines(out.String()) {
			if fields := strings.Fields(strings.TrimPrefix(line, "  "+name)); strings.HasPrefix(line, "  "+name+" ") {
				return strings.Join(fields, " ")
			}
		}
		return ""
	}
	for name, want := range map[string]string{"many": "200 99.5 189 197", "few": "10 7.00 7.00 7.00", "none left": "10 0.00 0.00 0.00"} {
		if got := last(name); got != want {
			t.Errorf("the row %s: got %q, want %q", name, got, want)
		}
	}
	sec := table("g", "a title", "MB", s, "few")
	if sec.tails() {
		t.Errorf("ten values have a 99th percentile that was not requested: %+v", sec.Rows)
	}
	sec.tails99(s)
	data, err := json.Marshal(table("g", "a title", "MB", s, "few"))
	if err != nil || strings.Contains(string(data), "p99") {
		t.Errorf("ten values: got %s, %v, want no p99", data, err)
	}
	none := table("g", "a title", "MB", s, "none left")
	none.tails99(s)
	if data, err := json.Marshal(none); err != nil || !strings.Contains(string(data), `"p99":0`) {
		t.Errorf("values of zero: got %s, %v, want a p99 of 0", data, err)
	}
}

func TestRounds(t *testing.T) {
	for _, c := range []struct{ n, count, want int }{{20, 1, 20}, {20, 10, 5}, {20, 100, 5}, {1, 1, 20}, {1, 10, 2}, {1, 100, 1}} {
		if got := (flags{n: c.n}).costRounds(c.count); got != c.want {
			t.Errorf("-n %d, %d copies: %d rounds, not %d", c.n, c.count, got, c.want)
		}
	}
	if a, b := (flags{n: 20}).crowdRounds(), (flags{n: 1}).crowdRounds(); a != 5 || b != 1 {
		t.Errorf("crowdRounds with -n 20 and -n 1: got %d and %d, want 5 and 1", a, b)
	}
	var order string
	step := func(name string) func() error { return func() error { order += name; return nil } }
	if err := runInTurns(3, []func() error{step("a"), step("b")}); err != nil || order != "abbaab" {
		t.Errorf("runInTurns: got the order %q, %v, want abbaab", order, err)
	}
}

func TestAddCost(t *testing.T) {
	for value, word := range map[float64]string{59: "reached", 61: "missed"} {
		s := newScores()
		s.add(didCost, value)
		sec := table("g", "a title", "ms", s)
		sec.addCost(10)
		if got := sec.Rows[0].verdict(); got != "≤ 60 ms: "+word {
			t.Errorf("the verdict about %v ms: got %q, want it %s", value, got, word)
		}
	}
}
