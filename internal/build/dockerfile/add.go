package dockerfile

import (
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/crannog/crannog/internal/build/remote"
	"github.com/crannog/crannog/internal/fault"
)

// CheckAdd returns an error for an ADD with a source that cannot be fetched. The variables in its
// words must have been replaced.
func CheckAdd(c *instructions.AddCommand) error { return checkSources(c, c.SourcePaths) }

// checkSources returns an error if one of the sources cannot be fetched.
func checkSources(c *instructions.AddCommand, sources []string) error {
	if c.Checksum != "" && len(c.SourcePaths)+len(c.SourceContents) != 1 {
		return Refused(c, "--checksum needs exactly one source")
	}
	for _, word := range sources {
		if !remote.Is(word) {
			if c.Checksum != "" {
				return Refused(c, "--checksum applies to URLs and repositories only")
			}
			continue
		}
		source, err := remote.Parse(word)
		if err == nil && c.Checksum != "" && !strings.Contains(c.Checksum, "$") {
			err = source.CheckSum(c.Checksum)
		}
		if err != nil {
			return Refused(c, "%s", fault.PublicText(err))
		}
	}
	return nil
}

// checkAdds makes the check of CheckAdd before anything is built. A word with variables that the
// base image may set is checked later, in its step.
func (p *Plan) checkAdds(commands []instructions.Command) error {
	values := map[string]string{}
	for _, c := range commands {
		switch c := c.(type) {
		case *instructions.ArgCommand:
			for _, a := range c.Args {
				if v, ok := p.Argument(a); ok {
					p.set(values, a.Key, v)
				}
			}
		case *instructions.EnvCommand:
			for _, e := range c.Env {
				p.set(values, e.Key, e.Value)
			}
		case *instructions.AddCommand:
			var sources []string
			for _, word := range c.SourcePaths {
				if source, known := p.expandKnown(word, values); known {
					sources = append(sources, source)
				}
			}
			if err := checkSources(c, sources); err != nil {
				return err
			}
		}
	}
	return nil
}

// expandKnown replaces the variables of a word, and reports whether all of them have values.
func (p *Plan) expandKnown(word string, values map[string]string) (string, bool) {
	out, err := p.lex.ProcessWordWithMatches(word, shell.EnvsFromSlice(p.merged(p.Platform, values)))
	return out.Result, err == nil && len(out.Unmatched) == 0
}

// set sets a variable, or removes it if its value is not known.
func (p *Plan) set(values map[string]string, name, word string) {
	value, known := p.expandKnown(word, values)
	if values[name] = value; !known {
		delete(values, name)
	}
}
