package mcpserver

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxText is the most characters of a result that an agent gets to read.
// Clients cut or spill longer ones in ways of their own.
const maxText = 30_000

// inert makes text from inside a sandbox fit to be shown: escape sequences
// are dropped, and what else could steer a terminal, turn the direction of
// writing or hide words from a person is dropped or made visible. A returning
// cursor begins a new line.
//
// It is not approval.Text, which a person decides by: that is one line, where a
// letter with anything hidden in it must not look like the letter without, so it
// marks what it takes out, and joiners and piles of accents too. A model reads
// pages of output, in which such letters are words, and marks would be noise. Nor
// is it cast.Screen, which lets through what draws: a terminal obeys that, and a
// model would have to read it.
func inert(s string) string {
	if !suspicious(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == 0x1b:
			i += escape(s[i:])
			continue
		case c == '\r':
			if i+1 < len(s) && s[i+1] == '\n' {
				i++
				continue
			}
			b.WriteByte('\n')
			i++
			continue
		case c < 0x20 && c != '\n' && c != '\t' || c == 0x7f:
			i++
			continue
		case c < utf8.RuneSelf:
			b.WriteByte(c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError || hidden(r) {
			r = utf8.RuneError
		}
		b.WriteRune(r)
		i += n
	}
	return b.String()
}

// faithful makes a file's text fit to be shown and keeps each character at
// its place, so that an agent sees that something is there.
func faithful(s string) string {
	if !suspicious(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < 0x20:
			return 0x2400 + r // its picture
		case r == 0x7f:
			return 0x2421
		case hidden(r):
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// suspicious is a quick look for anything but plain text.
func suspicious(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 && c != '\n' && c != '\t' || c >= 0x7f {
			return true
		}
	}
	return false
}

// hidden tells characters that a person does not see, or that change what
// they see: C1 controls, marks of direction, and tags, which can hold a whole
// hidden message to a model.
func hidden(r rune) bool {
	switch {
	case r >= 0x80 && r < 0xa0, r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	case r == 0x2028, r == 0x2029, r == 0xfeff, r >= 0xfff9 && r <= 0xfffb, r >= 0xe0000 && r <= 0xe0fff:
		return true
	}
	return false
}

// maxEscape bounds an escape sequence: what is longer is none.
const maxEscape = 4096

// escape returns the length of the escape sequence at the start of s, at
// least 1.
func escape(s string) int {
	if len(s) < 2 {
		return len(s)
	}
	end := min(len(s), maxEscape)
	switch s[1] {
	case '[':
		for i := 2; i < end; i++ {
			switch c := s[i]; {
			case c >= 0x40 && c <= 0x7e:
				return i + 1
			case c < 0x20 || c > 0x3f:
				return i
			}
		}
		return end
	case ']', 'P', '^', '_', 'X':
		for i := 2; i < end; i++ {
			switch s[i] {
			case 0x07:
				return i + 1
			case 0x1b:
				if i+1 < len(s) && s[i+1] == '\\' {
					return i + 2
				}
				return i
			case '\n':
				return i
			}
		}
		return end
	case '(', ')', '*', '+', '#', ' ', '%':
		return min(len(s), 3)
	}
	if s[1] >= 0x30 && s[1] <= 0x7e {
		return 2
	}
	return 1
}

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
