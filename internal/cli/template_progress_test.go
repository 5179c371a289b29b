package cli

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/api"
)

// rowsOf returns the rows of a terminal after output of characters, line ends, \r and the sequence
// that erases the rest of a row. Any other control character is an error, because the tests' output
// comes from a hostile program.
func rowsOf(t *testing.T, output string, columns int) []string {
	t.Helper()
	rows, row, column := [][]rune{{}}, 0, 0
	for len(output) > 0 {
		if rest, ok := strings.CutPrefix(output, "\x1b[K"); ok {
			rows[row], output = rows[row][:min(column, len(rows[row]))], rest
			continue
		}
		r := []rune(output)[0]
		output = output[len(string(r)):]
		switch {
		case r == '\r':
			column = 0
		case r == '\n':
			row, column = row+1, 0
			rows = append(rows, nil)
		case r < ' ' || r == 0x7f:
			t.Errorf("the control character %q reached the terminal", r)
		default:
			if column == columns {
				row, column = row+1, 0
				rows = append(rows, nil)
			}
			rows[row] = append(rows[row][:column], r)
			column++
		}
	}
	var lines []string
	for _, r := range rows {
		lines = append(lines, string(r))
	}
	return lines
}

// On a terminal, one line shows the oldest running step, and each step that ends stays. A program
// of a sandbox cannot control the terminal.
func TestBuildProgressOnTerminal(t *testing.T) {
	const columns = 40
	s := newScreen(t)
	if err := unix.IoctlSetWinsize(int(s.tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: 10}); err != nil {
		t.Fatal(err)
	}
	p, err := templateVerbs{newApp(Env{Stderr: s.tty, Vars: []string{"TERM=xterm"}})}.newBuildProgress(progressAuto)
	if err != nil || p.form != progressTTY {
		t.Fatalf("newBuildProgress on a terminal: got the form %q, error %v", p.form, err)
	}
	p.created(api.Build{Warnings: []api.BuildWarning{{Line: 3, Rule: "Rule", Text: "te\x1b[2Jxt"}}})
	p.event(api.BuildEvent{Kind: "started", Step: 1, Title: "[a] RUN first"})
	p.event(api.BuildEvent{Kind: "started", Step: 2, Title: "[b] RUN second with a very long title that no terminal shows whole"})
	p.event(api.BuildEvent{Kind: "output", Step: 1, Text: "10%\r50%\r"})
	p.event(api.BuildEvent{Kind: "output", Step: 1, Text: "100%\n\x1b]0;title\x07\x1b[1Aup"})
	p.event(api.BuildEvent{Kind: "cached", Step: 1})
	for i := range 60 {
		p.event(api.BuildEvent{Kind: "output", Step: 2, Text: fmt.Sprintf("line %d\n", i)})
	}
	fmt.Fprint(s.tty, "MIDDLE")
	middle := s.wait("MIDDLE")
	p.event(api.BuildEvent{Kind: "failed", Step: 2, Text: "exit \x1b[31mcode 7"})
	p.end()
	fmt.Fprint(s.tty, "END")
	all := s.wait("END")
	screen := rowsOf(t, strings.TrimSuffix(middle, "MIDDLE"), columns)
	last := screen[len(screen)-1]
	if want := "=> [b] RUN second with a very long titl…"; !strings.HasPrefix(last, "=> [b] RUN second") || len([]rune(last)) >= columns || !strings.HasSuffix(last, "…") {
		t.Errorf("the status line is %q, want one like %q that fits into %d columns", last, want, columns)
	}
	if n := strings.Count(strings.Join(screen, "\n"), "RUN second"); n != 1 {
		t.Errorf("the running step is shown %d times, want once:\n%s", n, strings.Join(screen, "\n"))
	}
	if !slices.Contains(screen, "=> [a] RUN first CACHED") {
		t.Errorf("the screen shows\n%s\nwithout the end of the first step", strings.Join(screen, "\n"))
	}
	final := strings.Join(rowsOf(t, strings.TrimSuffix(all, "END"), 1<<20), "\n")
	for _, want := range []string{" | line 20\n", " | line 59\n", "whole ERROR exit "} {
		if !strings.Contains(final, want) {
			t.Errorf("the screen shows\n%s\nwithout %q", final, want)
		}
	}
	if strings.Contains(final, " | line 19\n") {
		t.Errorf("the screen shows more than the last %d lines of a failed step", retainedLines)
	}
}

// A step whose output has no end of a line needs bounded memory.
func TestBuildProgressBoundsLines(t *testing.T) {
	var out bytes.Buffer
	p := &buildProgress{form: progressPlain, out: &out, steps: map[int]*shownStep{}}
	p.event(api.BuildEvent{Kind: "started", Step: 1, Title: "RUN yes"})
	for range 1000 {
		p.event(api.BuildEvent{Kind: "output", Step: 1, Text: strings.Repeat("y", 1<<10)})
	}
	if n := len(p.steps[1].partialLine); n > maxPartialLine {
		t.Errorf("%d bytes of a line are stored, want at most %d", n, maxPartialLine)
	}
	if !strings.Contains(out.String(), "yyy") {
		t.Error("the output of the step is not shown")
	}
}

func TestBuildProgressForms(t *testing.T) {
	s := newScreen(t)
	for _, c := range []struct {
		env        Env
		form, want string
	}{
		{Env{Stderr: s.tty, Vars: []string{"TERM=xterm"}}, progressAuto, progressTTY},
		{Env{Stderr: s.tty, Vars: []string{"TERM=dumb"}}, progressAuto, progressPlain},
		{Env{Stderr: s.tty, Vars: []string{"TERM=xterm"}}, progressPlain, progressPlain},
		{Env{Stderr: os.Stderr}, progressJSON, progressJSON},
		{Env{Stderr: &bytes.Buffer{}}, progressAuto, progressPlain},
		{Env{Stderr: &bytes.Buffer{}}, progressTTY, progressTTY},
	} {
		p, err := templateVerbs{newApp(c.env)}.newBuildProgress(c.form)
		if err != nil || p.form != c.want {
			t.Errorf("newBuildProgress(%q): got %+v, error %v, want the form %q", c.form, p, err, c.want)
		}
	}
	if _, err := (templateVerbs{newApp(Env{Stderr: s.tty})}).newBuildProgress("fancy"); err == nil {
		t.Error("an unknown form was accepted")
	}
}
