package registration

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// object is a JSON object in a text that may have comments and commas at the
// end, with the places of its parts. Editors write their files in this form.
type object struct {
	start, end int // of the braces: text[start] is {, text[end-1] is }
	members    []member
}

// member is one name and value of an object.
type member struct {
	name       string
	start      int // of the name
	value, end int // of the value
	comma      int // behind the comma that follows, or 0
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

// deepest is how far values may be nested.
const deepest = 200

// scanner reads such a text once. plain is the same text as strict JSON of the
// same length, with spaces for what is not.
type scanner struct {
	text  []byte
	at    int
	plain []byte
}

var errEnd = errors.New("the text ends too early")

// parse reads a text that is one object. An empty one is an empty object.
func parse(text []byte) (*object, []byte, error) {
	if !utf8.Valid(text) {
		return nil, nil, errors.New("it is not text in UTF-8")
	}
	s := &scanner{text: text, plain: append([]byte(nil), text...)}
	if len(text) >= 3 && string(text[:3]) == "\ufeff" {
		s.blank(0, 3)
		s.at = 3
	}
	s.space()
	if s.peek() != '{' {
		return nil, nil, errors.New("it is not an object")
	}
	var top member
	if err := s.read(&top, 0); err != nil {
		return nil, nil, err
	}
	if s.space(); s.at != len(text) {
		return nil, nil, s.wrong("something follows the object")
	}
	if !json.Valid(s.plain) {
		return nil, nil, errors.New("it is not JSON")
	}
	return top.object, s.plain, nil
}

func (s *scanner) wrong(why string) error {
	line := 1
	for _, c := range s.text[:min(s.at, len(s.text))] {
		if c == '\n' {
			line++
		}
	}
	return fmt.Errorf("line %d: %s", line, why)
}

// peek is the next byte, 0 at the end.
func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) blank(from, to int) {
	for i := from; i < to; i++ {
		if s.plain[i] != '\n' {
			s.plain[i] = ' '
		}
	}
}

// space passes over white space and comments.
func (s *scanner) space() {
	for s.at < len(s.text) {
		from := s.at
		switch c := s.text[s.at]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			s.at++
			continue
		case c != '/' || s.at+1 == len(s.text):
			return
		case s.text[s.at+1] == '/':
			for s.at < len(s.text) && s.text[s.at] != '\n' {
				s.at++
			}
		case s.text[s.at+1] == '*':
			for s.at += 2; s.at < len(s.text) && (s.text[s.at-1] != '*' || s.text[s.at] != '/' || s.at <= from+2); {
				s.at++
			}
			s.at = min(s.at+1, len(s.text))
		default:
			return
		}
		s.blank(from, s.at)
	}
}

// read reads a value into m.
func (s *scanner) read(m *member, depth int) error {
	if depth > deepest {
		return s.wrong("values are nested too deeply")
	}
	m.value = s.at
	var err error
	switch s.peek() {
	case 0:
		return errEnd
	case '{':
		m.object, err = s.readObject(depth)
	case '[':
		err = s.readArray(depth)
	case '"':
		_, err = s.readString()
	default:
		for s.at < len(s.text) && !isEnd(s.text[s.at]) {
			s.at++
		}
		if s.at == m.value {
			err = s.wrong("a value is missing")
		}
	}
	m.end = s.at
	return err
}

func isEnd(c byte) bool {
	switch c {
	case ',', ']', '}', ':', ' ', '\t', '\r', '\n', '/', '{', '[', '"':
		return true
	}
	return false
}

func (s *scanner) readString() (string, error) {
	from := s.at
	for s.at++; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case '\\':
			s.at++
		case '"':
			s.at++
			var text string
			if json.Unmarshal(s.text[from:s.at], &text) != nil {
				return "", s.wrong("a text is not well-formed")
			}
			return text, nil
		case '\n':
			return "", s.wrong("a text does not end")
		}
	}
	return "", errEnd
}

// follow reads what may stand behind a value: a comma, or the end. It reports
// whether it was the end, and where the comma ended.
func (s *scanner) follow(closing byte) (done bool, comma int, err error) {
	s.space()
	if s.peek() == ',' {
		s.at++
		comma = s.at
		s.space()
		if s.peek() == closing {
			s.blank(comma-1, comma) // which strict JSON does not have
		}
	}
	switch {
	case s.peek() == closing:
		s.at++
		return true, comma, nil
	case s.at >= len(s.text):
		return false, 0, errEnd
	case comma == 0:
		return false, 0, s.wrong("a comma is missing")
	}
	return false, comma, nil
}

func (s *scanner) readArray(depth int) error {
	s.at++
	if s.space(); s.peek() == ']' {
		s.at++
		return nil
	}
	for {
		var m member
		if err := s.read(&m, depth+1); err != nil {
			return err
		}
		if done, _, err := s.follow(']'); err != nil || done {
			return err
		}
	}
}

func (s *scanner) readObject(depth int) (*object, error) {
	o := &object{start: s.at}
	s.at++
	if s.space(); s.peek() == '}' {
		s.at++
		o.end = s.at
		return o, nil
	}
	for {
		m := member{start: s.at}
		if s.peek() != '"' {
			return nil, s.wrong("a name is missing")
		}
		var err error
		if m.name, err = s.readString(); err != nil {
			return nil, err
		}
		if s.space(); s.peek() != ':' {
			return nil, s.wrong("a colon is missing")
		}
		s.at++
		s.space()
		if err := s.read(&m, depth+1); err != nil {
			return nil, err
		}
		var done bool
		done, m.comma, err = s.follow('}')
		if err != nil {
			return nil, err
		}
		if o.find(m.name) != nil {
			// Programs differ in which of the two they take.
			return nil, s.wrong(fmt.Sprintf("the name %q stands twice", m.name))
		}
		if o.members = append(o.members, m); done {
			o.end = s.at
			return o, nil
		}
	}
}
