package search

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// maxGlob limits the length of a pattern.
const maxGlob = 1024

// Glob converts a pattern into a regular expression for paths: * and ? match within a name, **
// matches any number of directories, {a,b} is either, [a-z] is a range. A pattern without a slash
// matches a file's name in any directory.
func Glob(pattern string) (*regexp.Regexp, error) {
	if pattern == "" || len(pattern) > maxGlob {
		return nil, errors.New("the glob is empty or too long")
	}
	var b strings.Builder
	b.WriteString(`\A`)
	if !strings.Contains(pattern, "/") {
		b.WriteString(`(?:.*/)?`)
	}
	depth := 0
	for i := 0; i < len(pattern); i++ {
		rest := pattern[i:]
		switch c := pattern[i]; {
		case strings.HasPrefix(rest, "**/"):
			b.WriteString(`(?:.*/)?`)
			i += 2
		case strings.HasPrefix(rest, "**"):
			b.WriteString(`.*`)
			i++
		case c == '*':
			b.WriteString(`[^/]*`)
		case c == '?':
			b.WriteString(`[^/]`)
		case c == '{':
			depth++
			b.WriteString(`(?:`)
		case c == '}' && depth > 0:
			depth--
			b.WriteString(`)`)
		case c == ',' && depth > 0:
			b.WriteString(`|`)
		case c == '[':
			class, n := class(rest)
			if n == 0 {
				return nil, fmt.Errorf("the glob %q has a [ without an end", pattern)
			}
			b.WriteString(class)
			i += n - 1
		case c == '\\' && len(rest) > 1:
			i++
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		default:
			// Splitting by bytes would break characters beyond ASCII.
			r := []rune(rest)[0]
			b.WriteString(regexp.QuoteMeta(string(r)))
			i += len(string(r)) - 1
		}
	}
	if depth > 0 {
		return nil, fmt.Errorf("the glob %q has a { without an end", pattern)
	}
	b.WriteString(`\z`)
	return regexp.Compile("(?s)" + b.String())
}

// class converts [a-z] or [!a-z] into an expression and returns its length, or zero if the bracket
// is not closed.
func class(s string) (string, int) {
	end := strings.IndexByte(s[1:], ']')
	if end < 1 {
		return "", 0
	}
	inner := s[1 : end+1]
	not := ""
	if inner[0] == '!' || inner[0] == '^' {
		not, inner = "^/", inner[1:]
	}
	if inner == "" {
		return "", 0
	}
	inner = strings.NewReplacer(`\`, `\\`, `[`, `\[`, `^`, `\^`, `&`, `\&`).Replace(inner)
	return "[" + not + inner + "]", end + 2
}
