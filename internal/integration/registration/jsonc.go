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

// object is a JSON object in a text with the positions of its parts. The text may have comments and
// trailing commas, because editors write such files.
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
	if err := bounded(text); err != nil {
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
		return nil, nil, unreadable(err)
	}
	top, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil, nil, errors.New("it is not an object")
	}
	o, err := places(text, top, v.StartOffset, v.EndOffset)
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

// unreadable returns a parser's error without the literal that it may quote, which can be a key or
// contain terminal control characters.
func unreadable(err error) error {
	text := strings.TrimPrefix(err.Error(), "hujson: ")
	if place, _, ok := strings.Cut(text, ": invalid literal: "); ok {
		text = place + ": a value is not well-formed"
	}
	return errors.New(text)
}

// places returns the positions of an object's parts. It rejects a text in which any object has the
// same name twice, because programs differ in which of the two they use.
func places(text []byte, from *hujson.Object, start, end int) (*object, error) {
	o := &object{start: start, end: end}
	seen := make(map[string]bool, len(from.Members))
	for i, of := range from.Members {
		m := member{start: of.Name.StartOffset, value: of.Value.StartOffset, end: of.Value.EndOffset}
		if err := json.Unmarshal(text[m.start:of.Name.EndOffset], &m.name); err != nil {
			return nil, err
		}
		if seen[m.name] {
			return nil, fmt.Errorf("line %d: the name %q appears twice", 1+bytes.Count(text[:m.start], []byte("\n")), m.name)
		}
		seen[m.name] = true
		// The parser marks a trailing comma by an extra that is empty and not nil.
		if i+1 < len(from.Members) || of.Value.AfterExtra != nil {
			m.comma = m.end + len(of.Value.AfterExtra) + 1
		}
		var err error
		if m.object, err = below(text, of.Value); err != nil {
			return nil, err
		}
		o.members = append(o.members, m)
	}
	return o, nil
}

// below is places for any value. It returns nil if the value is not an object.
func below(text []byte, v hujson.Value) (*object, error) {
	switch of := v.Value.(type) {
	case *hujson.Object:
		return places(text, of, v.StartOffset, v.EndOffset)
	case *hujson.Array:
		for _, one := range of.Elements {
			if _, err := below(text, one); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// deepest is how deeply values may be nested.
const deepest = 200

// maxValues is how many values a text may have. The parser takes some 420 bytes of
// memory for each.
const maxValues = 500_000

// bounded rejects texts that would crash the parser, which recurses for each bracket without a
// limit. A file of one megabyte in another person's project would exhaust the stack, and no caller
// can recover from that. As far as a text is well-formed, the counts here are exact.
func bounded(text []byte) error {
	depth, values := 0, 1
	for at := 0; at < len(text); at++ {
		switch text[at] {
		case '{', '[':
			values++
			if depth++; depth > deepest {
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
