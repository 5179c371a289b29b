package policy

import (
	"errors"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// Problem is an error or a warning about a document.
type Problem struct {
	Line    int    // from 1; zero is the document as a whole
	Field   string // if known
	Text    string
	Warning bool // a warning
}

// Check parses a document as strictly as for a sandbox, combines it with the layers above, and
// returns all errors and warnings.
func Check(text []byte, layer string, above ...Layer) []Problem {
	d, err := Parse(text)
	if err != nil {
		return problemsIn(err)
	}
	_, warnings, err := Compile(append(above[:len(above):len(above)], Layer{Kind: layer, Document: d})...)
	if err != nil {
		return problemsIn(err)
	}
	var found []Problem
	for _, w := range warnings {
		if w.Layer == layer {
			found = append(found, Problem{Line: Line(text, w.Field), Field: w.Field, Text: w.Text, Warning: true})
		}
	}
	return found
}

// problemsIn splits the parser's error, which describes all mistakes in one text.
func problemsIn(err error) []Problem {
	var found []Problem
	text := err.Error()
	if f, ok := errors.AsType[*fault.Error](err); ok {
		text = fault.PublicText(f)
	}
	for i, text := range strings.Split(text, "; line ") {
		if i > 0 {
			text = "line " + text
		}
		line := 0
		if rest, ok := strings.CutPrefix(text, "line "); ok {
			if number, what, ok := strings.Cut(rest, ": "); ok {
				if n, err := strconv.Atoi(number); err == nil {
					line, text = n, what
				}
			}
		}
		found = append(found, Problem{Line: line, Text: text})
	}
	return found
}
