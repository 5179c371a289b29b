package mcpserver

import (
	"fmt"
	"unicode/utf8"

	"github.com/crannog/crannog/internal/host/text"
)

// maxText is the maximum of characters in a result. Clients shorten longer results in different
// ways.
const maxText = 30_000

// inert removes terminal control and other deceptive characters from text of a sandbox, before an
// agent reads it.
func inert(s string) string { return text.Output(s) }

// inertInPlace is inert for a file that the agent may edit.
func inertInPlace(s string) string { return text.InPlace(s) }

// cut shortens text in the middle to limit characters, and reports whether it was too long.
func cut(s string, limit int) (string, bool) {
	n := utf8.RuneCountInString(s)
	if n <= limit {
		return s, false
	}
	head, tail := limit/2, limit-limit/2
	h, t := prefix(s, head), suffix(s, tail)
	return fmt.Sprintf("%s\n… %d characters omitted …\n%s", h, n-head-tail, t), true
}

func prefix(s string, runes int) string {
	for i := range s {
		if runes == 0 {
			return s[:i]
		}
		runes--
	}
	return s
}

func suffix(s string, runes int) string {
	i := len(s)
	for ; runes > 0 && i > 0; runes-- {
		_, n := utf8.DecodeLastRuneInString(s[:i])
		i -= n
	}
	return s[i:]
}
