package fake

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// expand replaces variables and arithmetic expressions in a word.
func expand(w word, variables map[string]string) (string, error) {
	var out strings.Builder
	for _, p := range w.pieces {
		text := p.text
		if p.literal {
			out.WriteString(text)
			continue
		}
		for {
			before, after, ok := strings.Cut(text, "$")
			out.WriteString(before)
			if !ok {
				break
			}
			if arithmetic, ok := strings.CutPrefix(after, "(("); ok {
				expression, rest, ok := strings.Cut(arithmetic, "))")
				if !ok {
					return "", errSyntax
				}
				value, err := add(expression, variables)
				if err != nil {
					return "", err
				}
				out.WriteString(strconv.Itoa(value))
				text = rest
				continue
			}
			n := strings.IndexFunc(after+" ", func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
			if n == 0 {
				return "", fmt.Errorf("%w: $%s", errSyntax, after)
			}
			out.WriteString(variables[after[:n]])
			text = after[n:]
		}
	}
	return out.String(), nil
}

// add returns the sum of numbers and variables.
func add(expression string, variables map[string]string) (sum int, err error) {
	for term := range strings.SplitSeq(expression, "+") {
		term = strings.TrimSpace(term)
		if value, ok := variables[term]; ok {
			term = value
		}
		n, err := strconv.Atoi(term)
		if err != nil {
			return 0, fmt.Errorf("%w: %s", errSyntax, expression)
		}
		sum += n
	}
	return sum, nil
}
