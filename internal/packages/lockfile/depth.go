package lockfile

import (
	"errors"
	"strings"
)

// Limits of what parsers accept.
const (
	// maxFile is the maximum size of a lockfile. Those of the largest projects have some megabytes.
	maxFile = 16 << 20
	// maxYAML and maxTOML are smaller, because a parsed document takes many times its size in
	// memory.
	maxYAML = 8 << 20
	maxTOML = 8 << 20
	// maxDepth limits how deep values are nested. Parsers call themselves for each level, and a
	// stack that is exhausted ends the whole process.
	maxDepth = 128
	// maxDots limits the dots in the keys of one line of TOML, because each is a level too.
	maxDots = 32
	maxLine = 1 << 20
)

var (
	errTooMany  = errors.New("it names too many versions")
	errTooDeep  = errors.New("its values are nested too deep")
	errTooLarge = errors.New("it is larger than lockfiles are")
	errVersion  = errors.New("this version of the format is not known")
)

// checkDepth returns an error if the brackets in a JSON or TOML document are nested too deep. It
// knows the strings and comments of both, so that what is in them does not count.
func checkDepth(text string, toml bool) error {
	depth, dots, keys := 0, 0, tomlKeys{}
	for i := 0; i < len(text); {
		if toml && depth == 0 && (i == 0 || text[i-1] == '\n') {
			if err := keys.line(text[i:]); err != nil {
				return err
			}
		}
		switch c := text[i]; {
		case c == '[' || c == '{':
			if depth++; depth > maxDepth {
				return errTooDeep
			}
		case c == ']' || c == '}':
			depth = max(0, depth-1)
		case toml && c == '.':
			if dots++; dots > maxDots {
				return errTooDeep
			}
		case c == '\n':
			dots = 0
		case c == '"' || toml && c == '\'':
			i = afterString(text, i, toml)
			continue
		case toml && c == '#':
			if end := strings.IndexByte(text[i:], '\n'); end >= 0 {
				i += end
				continue
			}
			return nil
		}
		i++
	}
	return nil
}

// afterString returns the index after a string that begins at i. A string of one line ends at the
// latest with its line, as it does for the parser, which rejects the document then.
func afterString(text string, i int, toml bool) int {
	quote := text[i]
	long := strings.Repeat(string(quote), 3)
	if toml && strings.HasPrefix(text[i:], long) {
		for i += 3; i < len(text); i++ {
			if text[i] == '\\' && quote == '"' {
				i++
				continue
			}
			if strings.HasPrefix(text[i:], long) {
				i += 3
				// Up to two quotes may be the end of the content.
				for n := 0; n < 2 && i < len(text) && text[i] == quote; n++ {
					i++
				}
				return i
			}
		}
		return len(text)
	}
	for i++; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quote == '"':
			i++
		case c == quote:
			return i + 1
		case c == '\n':
			return i
		}
	}
	return len(text)
}

// tomlKeys counts the keys of a TOML document. The parser compares each key with the others of its
// table, so a document with very many would take hours.
type tomlKeys struct {
	keys    int // since the last package
	headers int // of other tables
}

// maxTOMLKeys limits the keys of one table, and the tables besides those of packages.
const maxTOMLKeys = 4000

// line counts a line that is not inside of a value. text begins with it.
func (k *tomlKeys) line(text string) error {
	k.keys++
	switch {
	case strings.HasPrefix(text, "[[package]]"):
		k.keys = 0 // each package has keys of its own
	case strings.HasPrefix(text, "[package."), strings.HasPrefix(text, "[[package."):
	case strings.HasPrefix(strings.TrimLeft(text[:min(len(text), maxField)], " \t"), "["):
		k.headers++
	case text[0] == '\n' || text[0] == '\r' || text[0] == '#':
		k.keys--
	}
	if k.keys > maxTOMLKeys || k.headers > maxTOMLKeys {
		return errTooMany
	}
	return nil
}
