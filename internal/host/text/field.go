package text

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// ASCII replaces all but visible ASCII and the blank by "?", so that a sandbox cannot forge a line or
// hide a part of one. It is for fields that judge or are compared, where a letter that looks like another would
// mislead: a path outside ASCII is never judged, and names of hosts are ASCII. What is longer than limit
// bytes ends in "...".
func ASCII(s string, limit int) string {
	if len(s) <= limit && PrintableASCII(s) {
		return s
	}
	var out strings.Builder
	for len(s) > 0 && out.Len() < limit {
		r, n := utf8.DecodeRuneInString(s)
		if r < ' ' || r >= 0x7f {
			r = '?'
		}
		out.WriteByte(byte(r))
		s = s[n:]
	}
	if s != "" {
		out.WriteString("...")
	}
	return out.String()
}

// EscapeJSON escapes in a JSON document what Strict takes out. It escapes and drops nothing, because a
// record must keep what was: a program chooses its arguments, and somebody looks at the file with cat.
// All that is not ASCII is inside a JSON string, where an escape means the same, and the encoder has
// escaped the controls below it.
func EscapeJSON(document []byte) []byte {
	plain := true
	for _, c := range document {
		if c >= 0x7f {
			plain = false
			break
		}
	}
	if plain {
		return document
	}
	var out bytes.Buffer
	out.Grow(len(document) + 64)
	for len(document) > 0 {
		r, n := utf8.DecodeRune(document)
		switch {
		case r == utf8.RuneError && n == 1:
			out.WriteString(`\ufffd`)
		case r < 0x7f || visible(r):
			out.Write(document[:n])
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		document = document[n:]
	}
	return out.Bytes()
}
