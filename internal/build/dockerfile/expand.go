package dockerfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/crannog/crannog/internal/fault"
)

// Environ returns variables as NAME=VALUE, sorted by name.
func Environ(m map[string]string) []string {
	list := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, k+"="+m[k])
	}
	return list
}

// Word replaces the variables of a word.
func (p *Plan) Word(word string, env []string) (string, error) {
	out, _, err := p.lex.ProcessWord(word, shell.EnvsFromSlice(env))
	if err != nil {
		return "", fault.Wrap(err, fault.Invalid, CodeInvalid, fmt.Sprintf("%.100q cannot be read: %v", word, err))
	}
	return out, nil
}

// Expand replaces the variables of an instruction's words.
func (p *Plan) Expand(c instructions.Command, env []string) error {
	var err error
	if one, ok := c.(instructions.SupportsSingleWordExpansion); ok {
		err = one.Expand(func(word string) (string, error) { return p.Word(word, env) })
	}
	if raw, ok := c.(instructions.SupportsSingleWordExpansionRaw); ok && err == nil {
		// The text of a here-document keeps its quotes.
		lex := shell.NewLex('\\')
		lex.SkipProcessQuotes = true
		err = raw.ExpandRaw(func(text string) (string, error) {
			out, _, err := lex.ProcessWord(text, shell.EnvsFromSlice(env))
			return out, err
		})
	}
	if many, ok := c.(*instructions.ExposeCommand); ok && err == nil {
		many.Ports, err = p.words(many.Ports, env)
	}
	if err != nil {
		return Refused(c, "%s", firstLine(err))
	}
	return nil
}

// words replaces the variables of words, each of which may become several.
func (p *Plan) words(list, env []string) (out []string, err error) {
	for _, word := range list {
		more, err := p.lex.ProcessWords(word, shell.EnvsFromSlice(env))
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// Argument returns the value of an ARG in a stage, and false if it has none.
func (p *Plan) Argument(a instructions.KeyValuePairOptional) (string, bool) {
	if v, ok := p.Args[a.Key]; ok {
		return v, true
	}
	if a.Value != nil {
		return *a.Value, true
	}
	if v, ok := p.Globals[a.Key]; ok {
		return v, true
	}
	v, ok := p.Platform[a.Key]
	return v, ok
}

// proxies are arguments that RUN gets without an ARG. They are not part of any cache key.
var proxies = []string{"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY"}

// Proxies returns the proxy settings that the caller gave as arguments.
func (p *Plan) Proxies() map[string]string {
	out := map[string]string{}
	for k, v := range p.Args {
		if slices.Contains(proxies, strings.ToUpper(k)) {
			out[k] = v
		}
	}
	return out
}

// Script is the program that RUN executes.
type Script struct {
	Args []string
	// File is a script with its own interpreter line, instead of Args.
	File string
}

// ScriptOf returns the program of a RUN. The shell form is run by a shell.
func ScriptOf(c *instructions.RunCommand, sh []string) (Script, error) {
	args := c.CmdLine
	if len(c.Files) > 0 {
		if len(args) != 1 || !c.PrependShell {
			return Script{}, Refused(c, "no command reads its here-document")
		}
		if parser.MustParseHeredoc(args[0]) != nil {
			data := c.Files[0].Data
			if c.Files[0].Chomp {
				data = parser.ChompHeredocContent(data)
			}
			if strings.HasPrefix(data, "#!") {
				return Script{File: data}, nil
			}
			args = []string{data}
		} else {
			// With several here-documents, the shell reads them itself.
			var full strings.Builder
			full.WriteString(args[0])
			for _, f := range c.Files {
				full.WriteString("\n" + f.Data + f.Name)
			}
			args = []string{full.String()}
		}
	}
	return Script{Args: WithShell(args, c.PrependShell, sh)}, nil
}

// WithShell returns the words of a command in its shell form or its exec form.
func WithShell(args []string, inShell bool, sh []string) []string {
	if !inShell {
		return args
	}
	if len(sh) == 0 {
		sh = []string{"/bin/sh", "-c"}
	}
	return append(slices.Clone(sh), strings.Join(args, " "))
}
