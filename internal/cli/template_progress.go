package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/host/text"
)

// buildProgress shows the progress of a build on standard error.
type buildProgress struct {
	form      string
	out       io.Writer
	steps     map[int]*shownStep
	hasStatus bool // the terminal shows a status line, which the next output replaces
}

// shownStep is the displayed state of a running step.
type shownStep struct {
	title, last string
	tail        []string // last lines of the output, shown if the step fails
	partialLine string   // beginning of a line that has not ended
}

// Values of --progress.
const (
	progressAuto  = "auto"
	progressPlain = "plain"
	progressTTY   = "tty"
	progressJSON  = "json"
)

func (a templateVerbs) newBuildProgress(form string) (*buildProgress, error) {
	if !slices.Contains([]string{progressAuto, progressPlain, progressTTY, progressJSON}, form) {
		return nil, usagef("--progress: %q is not plain, tty, json or auto", form)
	}
	if form == progressAuto {
		form = progressPlain
		if f, ok := a.Stderr.(*os.File); ok && isTerminal(f) && a.variable("TERM") != "dumb" {
			form = progressTTY
		}
	}
	p := &buildProgress{form: form, out: a.Stderr, steps: map[int]*shownStep{}}
	if a.quiet {
		p.out = io.Discard
	}
	return p, nil
}

// created shows the linter's warnings about the Dockerfile.
func (p *buildProgress) created(b api.Build) {
	for _, w := range b.Warnings {
		if p.form == progressJSON {
			p.json(struct {
				Kind string `json:"kind"`
				api.BuildWarning
			}{"warning", w})
			continue
		}
		fmt.Fprintf(p.out, "warning: Dockerfile line %d: %s (%s)\n", w.Line, inert(w.Text), inert(w.Rule))
	}
}

func (p *buildProgress) json(v any) {
	data, err := json.Marshal(v)
	if err == nil {
		fmt.Fprintf(p.out, "%s\n", data)
	}
}

// note shows what is done before the build begins.
func (p *buildProgress) note(text string) {
	if p.form == progressJSON {
		p.json(struct {
			Kind string `json:"kind"`
			Text string `json:"text"`
		}{"prepare", text})
		return
	}
	fmt.Fprintln(p.out, text)
}

// event shows an event of the build.
func (p *buildProgress) event(e api.BuildEvent) {
	if p.form == progressJSON {
		p.json(e)
		return
	}
	s := p.steps[e.Step]
	if s == nil {
		s = &shownStep{}
		p.steps[e.Step] = s
	}
	took := (time.Duration(e.Millis) * time.Millisecond).Round(100 * time.Millisecond)
	switch e.Kind {
	case "started":
		s.title = inert(e.Title)
		if p.form == progressPlain {
			p.printf(e.Step, "%s", s.title)
		}
	case "output":
		p.output(e.Step, s, e.Text)
	case "cached":
		p.finish(e.Step, s, "CACHED")
	case "done":
		p.finish(e.Step, s, "DONE "+took.String())
	case "failed":
		if p.form == progressTTY {
			p.erase()
			for _, l := range s.tail {
				fmt.Fprintf(p.out, " | %s\n", l)
			}
		}
		p.finish(e.Step, s, "ERROR "+inert(e.Text))
	}
	p.status()
}

// printf prints one line of the plain form.
func (p *buildProgress) printf(step int, format string, args ...any) {
	fmt.Fprintf(p.out, "#%d %s\n", step, fmt.Sprintf(format, args...))
}

// retainedLines is how many lines of a step's output are shown if it fails on a terminal.
const retainedLines = 40

// maxPartialLine bounds the memory for a line that a program of a sandbox never ends, in bytes.
const maxPartialLine = 64 << 10

// output stores output of a step, and prints complete lines in the plain form.
func (p *buildProgress) output(step int, s *shownStep, data string) {
	s.partialLine += data
	for {
		line, rest, ok := strings.Cut(s.partialLine, "\n")
		if !ok && len(s.partialLine) < maxPartialLine {
			break
		}
		s.partialLine = rest
		// Only the last state of a line that the program has rewritten counts.
		line = strings.TrimRight(line, "\r")
		line = line[strings.LastIndexByte(line, '\r')+1:]
		// A program of a sandbox must not control the terminal.
		line = text.Strict(line, lineLength)
		s.last = line
		if s.tail = append(s.tail, line); len(s.tail) > retainedLines {
			s.tail = s.tail[1:]
		}
		if p.form == progressPlain {
			p.printf(step, "%s", line)
		}
	}
}

// finish prints the end of a step.
func (p *buildProgress) finish(step int, s *shownStep, how string) {
	delete(p.steps, step)
	if s.partialLine != "" && p.form == progressPlain {
		p.printf(step, "%s", text.Strict(s.partialLine, lineLength))
	}
	if p.form == progressPlain {
		p.printf(step, "%s", how)
		return
	}
	p.erase()
	fmt.Fprintf(p.out, "=> %s %s\n", s.title, how)
}

// erase removes the status line.
func (p *buildProgress) erase() {
	if p.hasStatus {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.hasStatus = false
	}
}

// statusWidth is the line width if the terminal's is not known, and the largest one.
const statusWidth = 78

// width returns the number of columns of the status line. A line that is wider than the terminal
// would wrap, and erase removes one row only.
func (p *buildProgress) width() int {
	f, ok := p.out.(*os.File)
	if !ok {
		return statusWidth
	}
	cols, _, err := term.GetSize(int(f.Fd()))
	if err != nil || cols <= 1 {
		return statusWidth
	}
	return min(statusWidth, cols-1)
}

// status shows the oldest running step, with the last line of its output.
func (p *buildProgress) status() {
	if p.form != progressTTY || len(p.steps) == 0 {
		return
	}
	oldest := -1
	for n := range p.steps {
		if oldest < 0 || n < oldest {
			oldest = n
		}
	}
	s := p.steps[oldest]
	shown := []rune("=> " + s.title)
	if s.last != "" {
		shown = append(shown, []rune(": "+s.last)...)
	}
	if width := p.width(); len(shown) > width {
		shown = append(shown[:width-1], '…')
	}
	p.erase()
	fmt.Fprint(p.out, string(shown))
	p.hasStatus = true
}

func (p *buildProgress) end() { p.erase() }
