package approval

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// mark stands where a character was taken out, so that a name with something
// hidden in it never looks like the name without.
const mark = unicode.ReplacementChar

// maxMarks is how many accents one letter may carry. A pile of them paints
// over the lines above and below.
const maxMarks = 2

// Text makes text that a sandbox chose fit for a person's eyes: on one line,
// without anything that moves a cursor, turns the direction of writing, or is
// there without being seen, and no longer than max bytes. What is longer ends
// with the number of its bytes. Everything that shows an approval goes
// through here, or a program could write its own prompt. It is stricter than
// what agents are shown of a program's output (package mcpserver): nobody
// decides by that.
func Text(s string, max int) string {
	var b strings.Builder
	accents := 0
	for i, r := range s {
		if unicode.Is(unicode.M, r) {
			accents++
		} else {
			accents = 0
		}
		if !visible(r) || accents > maxMarks {
			r = mark
		}
		if b.Len()+utf8.RuneLen(r) > max {
			return strings.TrimRight(b.String(), " ") + fmt.Sprintf("… (%d bytes, %d shown)", len(s), i)
		}
		b.WriteRune(r)
	}
	return b.String()
}

// visible tells whether a character shows as itself. unicode.IsPrint knows
// neither control, format and private characters nor any space but the plain
// one; the rest are characters that count as letters or signs and show
// nothing.
func visible(r rune) bool {
	switch {
	case !unicode.IsPrint(r), unicode.Is(unicode.Variation_Selector, r):
		return false
	case r == 0x115F, r == 0x1160, r == 0x3164, r == 0xFFA0: // fillers of Hangul
		return false
	case r == 0x034F, r == 0x17B4, r == 0x17B5, r == 0x2800: // joiner, inherent vowels, empty braille
		return false
	}
	return true
}
