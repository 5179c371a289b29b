package text

import (
	"strings"
	"unicode/utf8"
)

// Output makes a program's output safe for a model. It drops escape sequences. Other characters
// that could control a terminal, change the direction of writing or hide words from a person are
// dropped or marked. A carriage return begins a new line.
//
// Output drops the sequences that Strict replaces by marks, because a model reads pages of output,
// in which marks for colours would be noise. It preserves the joiners and accents of all languages.
// Package asciicast has a separate rule for terminals. That rule passes drawing sequences, which a
// terminal obeys and a model would have to read.
func Output(s string) string {
	if !suspicious(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == 0x1b:
			i += escapeLength(s[i:])
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
		if r == mark || hidden(r) {
			r = mark
		}
		b.WriteRune(r)
		i += n
	}
	return b.String()
}

// InPlace makes a file's text safe for a model that edits it. Each character keeps its position,
// and a control character is replaced by its Unicode picture, so that the model notices it.
func InPlace(s string) string {
	if !suspicious(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < 0x20:
			return 0x2400 + r // the Unicode picture of the control character
		case r == 0x7f:
			return 0x2421
		case hidden(r):
			return mark
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// suspicious reports, after a quick check, whether there may be anything but plain text.
func suspicious(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 && c != '\n' && c != '\t' || c >= 0x7f {
			return true
		}
	}
	return false
}

// maxEscape bounds an escape sequence. A longer one is treated as text.
const maxEscape = 4096

// escapeLength returns the length of the escape sequence at the start of s, at least 1.
func escapeLength(s string) int {
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
