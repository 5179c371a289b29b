package text

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// ASCII replaces all characters except printable ASCII by "?", so that a sandbox can neither forge
// a line nor hide a part of one. It is for fields that are compared or that a decision depends on,
// where a similar-looking letter would mislead. Honest values of such fields are ASCII: host names
// are, and no decision depends on a path with other characters. Text longer than limit bytes ends
// in "...".
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

// EscapeJSON escapes in a JSON document the characters that Strict removes. It drops nothing,
// because an audit log must preserve the original: a program chooses its arguments, and a person
// may look at the file with cat. Everything outside ASCII is in a JSON string, where an escape
// means the same. The JSON encoder has already escaped the ASCII controls.
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
