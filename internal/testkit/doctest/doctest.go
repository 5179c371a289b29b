// Package doctest owns the format of documents that tests generate from the code.
package doctest

import (
	"strings"
	"unicode/utf8"
)

// columns is the width of prose in documents.
const columns = 100

// ListItem returns an item of a Markdown list in lines of at most 100 columns.
func ListItem(text string) string {
	var b strings.Builder
	b.WriteByte('-')
	column := 1
	for word := range strings.FieldsSeq(text) {
		if n := utf8.RuneCountInString(word); column+1+n > columns {
			b.WriteString("\n ")
			column = 1 + 1 + n
		} else {
			column += 1 + n
		}
		b.WriteString(" " + word)
	}
	return b.String() + "\n"
}
