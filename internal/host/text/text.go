// Package text owns the removal of harmful characters from text that a sandbox, a peer or an agent
// chose, before a person, a terminal, a log or a model reads it. Each purpose has a function:
// Strict for text that a person decides by, Line and Lines for text that a person reads, Output and
// InPlace for models, ASCII for fields whose honest values are ASCII, and EscapeJSON for JSON
// files, in which nothing may be lost.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// mark replaces a removed character, so that a name with hidden characters never looks like the
// name without them.
const mark = unicode.ReplacementChar

// maxMarks is how many accents one letter may carry. A pile of accents covers the lines above and
// below.
const maxMarks = 2

// visible reports whether a character has a visible shape. unicode.IsPrint excludes control, format
// and private characters and all spaces but the plain one. The exceptions listed here count as
// letters or symbols but are invisible.
func visible(r rune) bool {
	switch {
	case !unicode.IsPrint(r), unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point):
		return false
	case r == 0x2800: // empty braille
		return false
	}
	return true
}

// hidden reports whether a character is invisible and not a part of a word, or changes how others
// are displayed: controls, direction marks, line separators, fillers, and tags and selectors, which
// can hold a whole message that only a model reads. It is the rule for text that a person reads
// without deciding by it. Joiners and soft hyphens are parts of words in many languages, and of
// emoji.
func hidden(r rune) bool {
	switch {
	case r == 0x00ad, r == 0x200b, r == 0x200c, r == 0x200d: // soft hyphen; zero-width space, non-joiner and joiner
		return false
	case r == 0x034f, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5: // parts of Hebrew, Korean and Khmer words
		return false
	case r >= 0xe0000 && r <= 0xe0fff: // tags, selectors, and the range reserved for more of them
		return true
	case unicode.Is(unicode.Prepended_Concatenation_Mark, r): // signs that enclose digits
		return false
	}
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point)
}

// Printable reports whether text can be shown unchanged on one line. It is for names that are
// rejected otherwise.
func Printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// PrintableASCII reports whether text is ASCII without controls.
func PrintableASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// Clip shortens text to at most limit bytes without splitting a character, and marks the cut with
// "…". It does not make text harmless.
func Clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := max(limit, 0)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
