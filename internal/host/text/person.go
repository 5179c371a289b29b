package text

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Strict makes text safe for a person who decides by it: on one line, no longer than limit bytes,
// and without characters that move the cursor, change the direction of writing, or are invisible.
// Longer text ends with the number of its bytes. All code that shows an approval must use it, or a
// program could write its own prompt.
func Strict(s string, limit int) string {
	var b strings.Builder
	accents := 0
	for i, r := range s {
		if r = accented(r, &accents); !visible(r) {
			r = mark
		}
		if b.Len()+utf8.RuneLen(r) > limit {
			return strings.TrimRight(b.String(), " ") + fmt.Sprintf("… (%d bytes, %d shown)", len(s), i)
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Line makes text safe for a line of a table, a list or a log. White space of any kind, including
// line breaks, becomes a blank, so that a sandbox cannot forge a line. Variation selectors, which
// turn symbols into emoji, are preserved. Text longer than limit bytes ends in "…".
func Line(s string, limit int) string {
	var b strings.Builder
	accents := 0
	for _, r := range s {
		switch r = accented(r, &accents); {
		case unicode.IsSpace(r):
			r = ' '
		case r >= 0xfe00 && r <= 0xfe0f:
		case !visible(r):
			r = mark
		}
		if b.Len()+utf8.RuneLen(r) > limit {
			return b.String() + "…"
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Lines makes text of several lines, such as an error or a document, safe for a person's terminal.
// It preserves line breaks, tabs, and the letters and joiners of all languages, so it is not for
// text that a decision depends on.
func Lines(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && hidden(r) {
			return mark
		}
		return r
	}, s)
}

// accented counts the accents of a letter, and returns a mark for an accent that exceeds the limit.
func accented(r rune, accents *int) rune {
	if !unicode.Is(unicode.M, r) {
		*accents = 0
		return r
	}
	if *accents++; *accents > maxMarks {
		return mark
	}
	return r
}
