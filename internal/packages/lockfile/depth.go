package lockfile

import (
	"errors"
	"strings"
)

// Limits of what parsers accept.
const (
	// maxFile is the maximum size of a lockfile. Those of the largest projects have some megabytes.
	maxFile = 16 << 20
	// maxYAML is smaller, because a parsed document takes many times its size in memory.
	maxYAML = 8 << 20
	// maxDepth limits how deep values are nested. Parsers call themselves for each level, and a
	// stack that is exhausted ends the whole process.
	maxDepth = 128
	maxLine  = 1 << 20
)

var (
	errTooMany  = errors.New("it names too many versions")
	errTooDeep  = errors.New("its values are nested too deep")
	errTooLarge = errors.New("it is larger than lockfiles are")
	errVersion  = errors.New("this version of the format is not known")
)

// checkDepth returns an error if the brackets in a JSON or TOML document are nested too deep. It
// knows the strings and comments of both, so that brackets in them do not count.
func checkDepth(text string, toml bool) error {
	depth := 0
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '[' || c == '{':
			if depth++; depth > maxDepth {
				return errTooDeep
			}
		case c == ']' || c == '}':
			depth = max(0, depth-1)
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
