package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// report contains the results of a run.
type report struct {
	Host     host      `json:"host"`
	Sections []section `json:"sections"`

	live io.Writer // prints each section when it is complete; may be nil
}

// section is one table.
type section struct {
	Group string   `json:"group"`
	Title string   `json:"title"`
	Unit  string   `json:"unit"`
	Rows  []row    `json:"rows"`
	Notes []string `json:"notes,omitempty"`
}

// row is one line of a table.
type row struct {
	Name     string   `json:"name"`
	N        int      `json:"n"`
	P50      float64  `json:"p50"`
	P95      float64  `json:"p95"`
	P99      *float64 `json:"p99,omitempty"` // set if there are enough values
	Baseline string   `json:"baseline,omitempty"`
	Ratio    float64  `json:"ratio,omitempty"` // of the medians
	Target   string   `json:"target,omitempty"`
	Reached  bool     `json:"reached,omitempty"`
}

// minForP99 is the number of values from which the 99th percentile differs from the largest value.
const minForP99 = 200

// table returns a section with the scores of a race. Its rows are in the order of names or, without
// names, in the order in which they were added. Names without a score are left out.
func table(group, title, unit string, s *scores, names ...string) section {
	if len(names) == 0 {
		names = s.order
	}
	sec := section{Group: group, Title: title, Unit: unit}
	for _, name := range names {
		if v := s.by[name]; len(v) > 0 {
			r := row{Name: name, N: len(v), P50: v.p50(), P95: v.p95()}
			if len(v) >= minForP99 {
				r.P99 = v.p99()
			}
			sec.Rows = append(sec.Rows, r)
		}
	}
	return sec
}

// tails99 adds a 99th percentile to every row. With few values it is close to the largest one.
func (s *section) tails99(from *scores) {
	for i := range s.Rows {
		s.Rows[i].P99 = from.by[s.Rows[i].Name].p99()
	}
}

// against sets the baseline of the given rows, or of all rows if none are given.
func (s *section) against(baseline string, rows ...string) {
	base := s.find(baseline)
	if base == nil || base.P50 == 0 {
		return
	}
	for i := range s.Rows {
		r := &s.Rows[i]
		if r.Name != baseline && (len(rows) == 0 || slices.Contains(rows, r.Name)) {
			r.Baseline, r.Ratio = baseline, r.P50/base.P50
		}
	}
}

// target sets the target of a row, and whether it was reached.
func (s *section) target(name, text string, reached func(r row) bool) {
	if r := s.find(name); r != nil {
		r.Target, r.Reached = text, reached(*r)
	}
}

// note adds a line below the table.
func (s *section) note(format string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}

// find returns the row with a name, or nil.
func (s *section) find(name string) *row {
	for i := range s.Rows {
		if s.Rows[i].Name == name {
			return &s.Rows[i]
		}
	}
	return nil
}

// add adds a section and prints it.
func (r *report) add(s section) {
	r.Sections = append(r.Sections, s)
	if r.live != nil {
		s.print(r.live)
	}
}

func (s section) print(w io.Writer) {
	width := len("what")
	for _, r := range s.Rows {
		width = max(width, len([]rune(r.Name)))
	}
	fmt.Fprintf(w, "\n%s: %s\n", s.Group, s.Title)
	tail := func(string) string { return "" }
	if s.tails() {
		tail = func(text string) string { return fmt.Sprintf(" %10s", text) }
	}
	fmt.Fprintf(w, "  %s %5s %10s %10s%s   %s\n", pad("what", width), "n", "p50 "+s.Unit, "p95 "+s.Unit, tail("p99 "+s.Unit), "against the baseline; target")
	for _, r := range s.Rows {
		p99 := ""
		if r.P99 != nil {
			p99 = number(*r.P99)
		}
		fmt.Fprintf(w, "  %s %5d %10s %10s%s   %s\n", pad(r.Name, width), r.N, number(r.P50), number(r.P95), tail(p99), r.verdict())
	}
	for _, n := range s.Notes {
		fmt.Fprintf(w, "  %s\n", n)
	}
}

// tails reports whether any row has a 99th percentile.
func (s section) tails() bool {
	for _, r := range s.Rows {
		if r.P99 != nil {
			return true
		}
	}
	return false
}

// verdict compares a row with its baseline and its target.
func (r row) verdict() string {
	var parts []string
	if r.Baseline != "" {
		parts = append(parts, fmt.Sprintf("%.2f× %s", r.Ratio, r.Baseline))
	}
	if r.Target != "" {
		word := "missed"
		if r.Reached {
			word = "reached"
		}
		parts = append(parts, r.Target+": "+word)
	}
	return strings.Join(parts, "; ")
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-len([]rune(s))))
}

// number formats a number with three significant digits.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
