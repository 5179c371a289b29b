package registration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

// object is a JSON object in a text, with the positions of its parts. The text may have comments
// and trailing commas, because editors write such files.
type object struct {
	start, end int // of the braces: text[start] is {, text[end-1] is }
	members    []member
}

// member is one name and value of an object.
type member struct {
	name       string
	start      int // of the name
	value, end int // of the value
	comma      int // the position behind the comma that follows, or 0
	object     *object
}

func (o *object) find(name string) *member {
	for i := range o.members {
		if o.members[i].name == name {
			return &o.members[i]
		}
	}
	return nil
}

const byteOrderMark = "\ufeff"

// parse reads a text that holds one object. It returns the positions of its parts, and the same
// text as strict JSON of the same length.
func parse(text []byte) (*object, []byte, error) {
	if !utf8.Valid(text) {
		return nil, nil, errors.New("it is not text in UTF-8")
	}
	if err := checkSize(text); err != nil {
		return nil, nil, err
	}
	// The parser accepts neither a byte order mark nor a comment without a line end. Neither change
	// moves the rest of the text.
	data := append(bytes.Clone(text), '\n')
	if bytes.HasPrefix(data, []byte(byteOrderMark)) {
		copy(data, "   ")
	}
	v, err := hujson.Parse(data)
	if err != nil {
		return nil, nil, withoutValue(err)
	}
	top, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil, nil, errors.New("it is not an object")
	}
	o, err := locate(text, top, v.StartOffset, v.EndOffset)
	if err != nil {
		return nil, nil, err
	}
	v.Standardize()
	plain := v.Pack()[:len(text)]
	if !json.Valid(plain) {
		return nil, nil, errors.New("it is not JSON")
	}
	return o, plain, nil
}

// withoutValue removes a literal from the parser's error, because it can be a key or contain
// terminal control characters.
func withoutValue(err error) error {
	text := strings.TrimPrefix(err.Error(), "hujson: ")
	if place, _, ok := strings.Cut(text, ": invalid literal: "); ok {
		text = place + ": a value is not well-formed"
	}
	return errors.New(text)
}

// locate returns the positions of an object's parts. It rejects a text in which any object has the
// same name twice, because programs differ in which of the two they use.
func locate(text []byte, from *hujson.Object, start, end int) (*object, error) {
	o := &object{start: start, end: end}
	seen := make(map[string]bool, len(from.Members))
	for i, source := range from.Members {
		m := member{start: source.Name.StartOffset, value: source.Value.StartOffset, end: source.Value.EndOffset}
		if err := json.Unmarshal(text[m.start:source.Name.EndOffset], &m.name); err != nil {
			return nil, err
		}
		if seen[m.name] {
			return nil, fmt.Errorf("line %d: the name %q appears twice", 1+bytes.Count(text[:m.start], []byte("\n")), m.name)
		}
		seen[m.name] = true
		// For a trailing comma, the parser sets AfterExtra to an empty slice that is not nil.
		if i+1 < len(from.Members) || source.Value.AfterExtra != nil {
			m.comma = m.end + len(source.Value.AfterExtra) + 1
		}
		var err error
		if m.object, err = locateValue(text, source.Value); err != nil {
			return nil, err
		}
		o.members = append(o.members, m)
	}
	return o, nil
}

// locateValue is locate for any value. It returns nil if the value is not an object.
func locateValue(text []byte, v hujson.Value) (*object, error) {
	switch value := v.Value.(type) {
	case *hujson.Object:
		return locate(text, value, v.StartOffset, v.EndOffset)
	case *hujson.Array:
		for _, element := range value.Elements {
			if _, err := locateValue(text, element); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// maxDepth limits how deeply values may be nested.
const maxDepth = 200

// maxValues limits how many values a text may have. The parser takes about 420 bytes of memory for
// each.
const maxValues = 500_000

// checkSize rejects a text that would crash the parser, which recurses for each bracket without a
// limit. In a file of another person, one megabyte of brackets would exhaust the stack, which no
// caller can handle. For a well-formed text the counts here are exact.
func checkSize(text []byte) error {
	depth, values := 0, 1
	for at := 0; at < len(text); at++ {
		switch text[at] {
		case '{', '[':
			values++
			if depth++; depth > maxDepth {
				return errors.New("values are nested too deeply")
			}
		case '}', ']':
			depth--
		case ',':
			values++
		case '"':
			for at++; at < len(text) && text[at] != '"'; at++ {
				if text[at] == '\\' {
					at++
				}
			}
		case '/':
			at += comment(text[at:])
		}
		if values > maxValues {
			return fmt.Errorf("it has more than %d values", maxValues)
		}
	}
	return nil
}

// comment returns the length of a comment, or 0 if there is none.
func comment(text []byte) int {
	var end string
	switch {
	case bytes.HasPrefix(text, []byte("//")):
		end = "\n"
	case bytes.HasPrefix(text, []byte("/*")):
		end = "*/"
	default:
		return 0
	}
	if n := bytes.Index(text[2:], []byte(end)); n >= 0 {
		return 2 + n + len(end) - 1
	}
	return len(text)
}
