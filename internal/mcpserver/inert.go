package mcpserver

import (
	"fmt"
	"unicode/utf8"

	"github.com/crannog/crannog/internal/host/text"
)

// maxText is the most characters of a result that an agent gets to read.
// Clients cut or spill longer ones in ways of their own.
const maxText = 30_000

// inert is what an agent reads of text from inside a sandbox.
func inert(s string) string { return text.Output(s) }

// faithful is what an agent reads of a file that it may edit.
func faithful(s string) string { return text.InPlace(s) }

// cut shortens text in the middle to most characters, and reports whether it
// did.
func cut(s string, most int) (string, bool) {
	n := utf8.RuneCountInString(s)
	if n <= most {
		return s, false
	}
	head, tail := most/2, most-most/2
	h, t := prefix(s, head), suffix(s, tail)
	return fmt.Sprintf("%s\n… %d characters left out …\n%s", h, n-head-tail, t), true
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
