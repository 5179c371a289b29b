package redaction

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"

	"github.com/crannog/crannog/internal/egress/redact"
)

// maskJSON redacts each string of a JSON text by its decoded content, however it is escaped, and
// leaves everything else as it is. Invalid JSON is redacted as text.
func maskJSON(text []byte, r *redact.Redactor) []byte {
	return jsonMask{text: r, pictures: r}.mask(text)
}

// jsonMask redacts JSON. Pictures are base64 and are decoded for redaction.
type jsonMask struct{ text, pictures *redact.Redactor }

// pictureFields contain base64.
var pictureFields = map[string]bool{"png": true, "jpeg": true, "pdf": true}

// maxFieldName is the length of the longest name in pictureFields.
const maxFieldName = len("jpeg")

func (m jsonMask) mask(text []byte) []byte {
	if !json.Valid(text) {
		return m.text.Bytes(text)
	}
	var out []byte // nil while unchanged
	done := 0      // number of bytes of text that out already covers
	replace := func(from, to int, with []byte) {
		if out == nil {
			out = make([]byte, 0, len(text)+len(with)-(to-from)+64)
		}
		out = appendQuoted(append(out, text[done:from]...), with)
		done = to
	}
	field := ""
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			end := stringEnd(text, i)
			key := isFollowedBy(text, end, ':')
			content := unquote(text[i:end])
			var masked []byte
			if !key && pictureFields[field] {
				masked = m.maskBase64(content)
			} else {
				masked = m.text.Bytes(content)
			}
			if !bytes.Equal(masked, content) {
				replace(i, end, masked)
			}
			if field = ""; key && len(content) <= maxFieldName {
				field = string(content)
			}
			i = end
		case c == '-' || '0' <= c && c <= '9':
			end := i
			for end < len(text) && isNumeric(text[end]) {
				end++
			}
			if masked := m.text.Bytes(text[i:end]); !bytes.Equal(masked, text[i:end]) {
				replace(i, end, masked)
			}
			i = end
		default:
			i++
		}
	}
	if out == nil {
		return text
	}
	return append(out, text[done:]...)
}

// maskBase64 redacts the decoded base64, whose result is encoded again, and then the letters of the
// encoding. It does not change the input.
func (m jsonMask) maskBase64(letters []byte) []byte {
	if m.pictures == nil {
		return letters
	}
	data := make([]byte, base64.StdEncoding.DecodedLen(len(letters)))
	if n, err := base64.StdEncoding.Decode(data, letters); err == nil {
		if masked := m.pictures.Bytes(data[:n]); !bytes.Equal(masked, data[:n]) {
			letters = base64.StdEncoding.AppendEncode(nil, masked)
		}
	}
	return m.pictures.Bytes(letters)
}

// stringEnd returns where a string of valid JSON ends.
func stringEnd(text []byte, at int) int {
	for i := at + 1; ; i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

func isFollowedBy(text []byte, at int, c byte) bool {
	for ; at < len(text); at++ {
		switch text[at] {
		case ' ', '\t', '\r', '\n':
		default:
			return text[at] == c
		}
	}
	return false
}

func isNumeric(c byte) bool {
	return '0' <= c && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

// unquote returns the content of a string of valid JSON. Without escapes this is a part of the
// input, which avoids a copy of many MiB.
func unquote(token []byte) []byte {
	if inside := token[1 : len(token)-1]; bytes.IndexByte(inside, '\\') < 0 && utf8.Valid(inside) {
		return inside
	}
	var s string
	if err := json.Unmarshal(token, &s); err != nil {
		return token // not reached, because the whole text is valid JSON
	}
	return []byte(s)
}

// quotePiece is how much of a string is encoded at once.
const quotePiece = 32 << 10

// appendQuoted appends a string as JSON. HTML characters are not escaped: six bytes for each would
// need six times the memory.
func appendQuoted(dst, s []byte) []byte {
	var quoted bytes.Buffer
	e := json.NewEncoder(&quoted)
	e.SetEscapeHTML(false)
	dst = append(dst, '"')
	for len(s) > 0 {
		n := min(quotePiece, len(s))
		for back := 0; n < len(s) && !utf8.RuneStart(s[n]) && back < utf8.UTFMax-1; back++ {
			n-- // do not cut within a character
		}
		quoted.Reset()
		if err := e.Encode(string(s[:n])); err != nil { // strings always encode
			panic(err)
		}
		dst = append(dst, quoted.Bytes()[1:quoted.Len()-len("\"\n")]...)
		s = s[n:]
	}
	return append(dst, '"')
}
