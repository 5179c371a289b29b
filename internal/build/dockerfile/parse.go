// Package dockerfile owns the meaning of a Dockerfile: its stages, which of them a build needs, and
// the variables of its instructions. It runs nothing.
package dockerfile

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/crannog/crannog/internal/fault"
)

// CodeInvalid is the code of the error for a Dockerfile that cannot be built.
const CodeInvalid = "dockerfile_invalid"

// maxBytes bounds the size of a Dockerfile, because the parser holds several copies of it in
// memory.
const maxBytes = 1 << 20

// Warning is a linter warning about an instruction that works.
type Warning struct {
	Line       int
	Rule, Text string
}

// File is a parsed Dockerfile.
type File struct {
	Warnings []Warning
	stages   []instructions.Stage
	args     []instructions.ArgCommand
	lex      *shell.Lex
}

// Parse reads a Dockerfile.
func Parse(text []byte) (*File, error) {
	if len(text) > maxBytes {
		return nil, fault.Newf(fault.Invalid, CodeInvalid, "the Dockerfile has %d bytes, and the limit is %d", len(text), maxBytes)
	}
	parsed, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, invalid(err)
	}
	f := &File{lex: shell.NewLex(parsed.EscapeToken)}
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, text string, at []parser.Range) {
		f.Warnings = append(f.Warnings, Warning{Line: line(at), Rule: rule, Text: text})
	}})
	if f.stages, f.args, err = instructions.Parse(parsed.AST, lint); err != nil {
		return nil, invalid(err)
	}
	if len(f.stages) == 0 {
		return nil, fault.New(fault.Invalid, CodeInvalid, "the Dockerfile has no FROM")
	}
	return f, nil
}

// line returns the number of an instruction's first line, or 0.
func line(at []parser.Range) int {
	if len(at) == 0 {
		return 0
	}
	return at[0].Start.Line
}

// invalid returns the error for a Dockerfile that cannot be parsed.
func invalid(err error) error {
	return fault.Wrap(err, fault.Invalid, CodeInvalid, "the Dockerfile cannot be built: "+firstLine(err))
}

// Refused returns the error for an instruction that cannot be built.
func Refused(c instructions.Command, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if len(c.Location()) == 0 {
		return fault.New(fault.Invalid, CodeInvalid, text)
	}
	return fault.Newf(fault.Invalid, CodeInvalid, "Dockerfile line %d: %s: %s", line(c.Location()), c.Name(), text)
}

func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

// ParseOne parses one instruction, such as an ONBUILD trigger of a base image.
func ParseOne(text string) (instructions.Command, error) {
	parsed, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		return nil, invalid(err)
	}
	if len(parsed.AST.Children) != 1 {
		return nil, fault.Newf(fault.Invalid, CodeInvalid, "the base image has the trigger %.100q, which is not one instruction", text)
	}
	c, err := instructions.ParseCommand(parsed.AST.Children[0])
	if err != nil {
		return nil, invalid(err)
	}
	return c, nil
}
