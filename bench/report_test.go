package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func sample() section {
	s := newScores()
	for _, v := range []float64{10, 20, 30} {
		s.add("bare", v)
		s.add("box", 2*v)
	}
	sec := table("g", "a title", "ms", s, "bare", "box", "nobody")
	sec.against("bare")
	sec.target("box", "≤ 1.5× bare", func(r row) bool { return r.Ratio <= 1.5 })
	return sec
}

func TestTable(t *testing.T) {
	sec := sample()
	if len(sec.Rows) != 2 {
		t.Fatalf("%d rows: one that nobody scored is shown", len(sec.Rows))
	}
	box := sec.find("box")
	if box.N != 3 || box.P50 != 40 || box.Ratio != 2 || box.Baseline != "bare" || box.Reached {
		t.Errorf("%+v", box)
	}
	if bare := sec.find("bare"); bare.Baseline != "" || bare.Ratio != 0 {
		t.Errorf("the baseline is compared with itself: %+v", bare)
	}
}

func TestMissingBaselineGivesNoRatio(t *testing.T) {
	sec := sample()
	sec.Rows[1].Ratio, sec.Rows[1].Baseline = 0, ""
	sec.against("absent")
	if sec.find("box").Ratio != 0 {
		t.Error("a ratio to nothing")
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
			t.Errorf("%v is shown as %s, not %s", v, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	f, err := parse([]string{"-only", "exec,create", "-n", "7", "-json"}, io.Discard)
	if err != nil || f.n != 7 || !f.json || len(f.wanted()) != 2 {
		t.Errorf("%+v %v", f, err)
	}
	for _, bad := range [][]string{{"-only", "nothing"}, {"-n", "0"}, {"-crowd", "0"}, {"word"}, {"-n", "x"}} {
		if _, err := parse(bad, io.Discard); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
	if f, _ := parse(nil, io.Discard); len(f.wanted()) != len(groups) {
		t.Errorf("without -only: %v", f.wanted())
	}
	if n := (flags{n: 2}).fewer(4); n != 2 {
		t.Errorf("fewer of 2 is %d", n)
	}
	if n := (flags{n: 20}).fewer(4); n != 5 {
		t.Errorf("fewer of 20 is %d", n)
	}
}
