package masking

import (
	"encoding/base64"
	"encoding/json"

	"github.com/crannog/crannog/internal/causeway/redact"
)

// maskJSON masks each string of a JSON text as what it says, however it is
// escaped, and leaves all else as it is written. What is no JSON is masked as
// text.
func maskJSON(text []byte, r *redact.Redactor) []byte {
	return jsonMask{text: r, pictures: r}.mask(text)
}

// jsonMask masks JSON. Pictures are base64, in which nothing can be found by
// its form alone.
type jsonMask struct{ text, pictures *redact.Redactor }

// pictureFields hold base64.
var pictureFields = map[string]bool{"png": true, "jpeg": true, "pdf": true}

func (m jsonMask) mask(text []byte) []byte {
	if !json.Valid(text) {
		return m.text.Bytes(text)
	}
	var out []byte // nil while nothing was changed
	done := 0      // of text, up to where out has it
	replace := func(from, to int, with []byte) {
		out = append(append(out, text[done:from]...), with...)
		done = to
	}
	field := ""
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			end := stringEnd(text, i)
			key := follows(text, end, ':')
			said := unquote(text[i:end])
			var masked string
			if !key && pictureFields[field] {
				masked = m.picture(said)
			} else {
				masked = m.text.String(said)
			}
			if masked != said {
				replace(i, end, quote(masked))
			}
			if field = ""; key {
				field = said
			}
			i = end
		case c == '-' || '0' <= c && c <= '9':
			end := i
			for end < len(text) && numeric(text[end]) {
				end++
			}
			if number := string(text[i:end]); m.text.String(number) != number {
				replace(i, end, quote(m.text.String(number)))
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

// picture masks what base64 says, which stays base64, and then its letters.
func (m jsonMask) picture(letters string) string {
	if m.pictures == nil {
		return letters
	}
	if data, err := base64.StdEncoding.DecodeString(letters); err == nil {
		if masked := m.pictures.Bytes(data); string(masked) != string(data) {
			letters = base64.StdEncoding.EncodeToString(masked)
		}
	}
	return m.pictures.String(letters)
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

func follows(text []byte, at int, c byte) bool {
	for ; at < len(text); at++ {
		switch text[at] {
		case ' ', '\t', '\r', '\n':
		default:
			return text[at] == c
		}
	}
	return false
}

func numeric(c byte) bool {
	return '0' <= c && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

func unquote(token []byte) string {
	var s string
	if err := json.Unmarshal(token, &s); err != nil {
		return string(token) // not reached: the whole was valid
	}
	return s
}

func quote(s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil { // strings always encode
		panic(err)
	}
	return quoted
}
