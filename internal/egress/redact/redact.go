// Package redact owns the redaction of secrets in outgoing data: responses to a sandbox, command
// output, logs and audit entries. It recognises known values in all common encodings, and on
// request unknown tokens by their format.
//
// It does not stop a program that knows a value from hiding it. A program that encrypts the value,
// or sends every second character, gets it past any redactor.
package redact

import (
	"strings"
	"sync"

	"github.com/crannog/crannog/internal/fault"
)

const (
	// MinValue is the minimum length of a value. Redacting shorter ones would remove ordinary text
	// that is equal by chance.
	MinValue = 8
	// MaxValue limits the size of the tables, which contain each value in a dozen forms.
	MaxValue = 32 << 10
	// minDistinct is the minimum number of different bytes in a value, because "aaaaaaaa" or eight
	// blanks occur in ordinary text.
	minDistinct = 4
)

// Value is a secret, and the name that appears in its replacement.
type Value struct {
	Name string
	Data []byte
}

// Options configure the redaction.
type Options struct {
	// Patterns also redacts unknown tokens, by their form.
	Patterns bool
	// SameLength replaces each byte of a value by a star, so that lengths in a surrounding binary
	// format stay valid. Otherwise a value is replaced by "[redacted:NAME]".
	SameLength bool
}

// Redactor redacts a set of values. It is safe for concurrent use, but its streams are not. The nil
// Redactor redacts nothing. The tables are built when the first byte arrives.
type Redactor struct {
	sameLength bool
	tables     func() *tables
	inNames    func() *automaton
}

// New creates a Redactor. Values that Check rejects are an error, because silently ignoring one
// would reveal it. The values are copied.
func New(values []Value, o Options) (*Redactor, error) {
	copied := make([]Value, 0, len(values))
	for _, v := range values {
		if err := Check(v.Data); err != nil {
			return nil, err
		}
		copied = append(copied, Value{Name: v.Name, Data: append([]byte(nil), v.Data...)})
	}
	return &Redactor{
		sameLength: o.SameLength,
		tables:     sync.OnceValue(func() *tables { return build(copied, o.Patterns) }),
		inNames:    namesOf(copied),
	}, nil
}

// Check returns an error if a value cannot be redacted without removing other text.
func Check(data []byte) error {
	if len(data) < MinValue {
		return fault.Newf(fault.Invalid, "secret_too_short",
			"a secret needs at least %d bytes: a shorter one cannot be redacted in output without redacting ordinary text too", MinValue).
			WithHint("use a longer value")
	}
	if len(data) > MaxValue {
		return fault.Newf(fault.Invalid, "secret_too_long", "a secret has at most %d bytes", MaxValue)
	}
	var seen [256]bool
	distinct := 0
	for _, b := range data {
		if !seen[b] {
			seen[b] = true
			distinct++
		}
	}
	if distinct < minDistinct {
		return fault.Newf(fault.Invalid, "secret_too_plain",
			"a secret needs at least %d different characters: a plainer one occurs in ordinary text, which would be redacted", minDistinct).
			WithHint("use a random value")
	}
	return nil
}

// Bytes returns b with all values redacted, or b itself if it has none. The beginning of a value at
// the end of b is redacted too, if it has at least MinValue bytes, because the rest may be shown
// elsewhere.
func (r *Redactor) Bytes(b []byte) []byte {
	if r == nil || len(b) == 0 {
		return b
	}
	s := r.Stream()
	// The scan only reads the buffer, so the caller's can be used directly.
	s.buf = b[:len(b):len(b)]
	s.scan()
	s.cut()
	if len(s.spans) == 0 {
		return b
	}
	return s.emit(make([]byte, 0, len(b)+64), s.pos)
}

// String is Bytes for strings.
func (r *Redactor) String(text string) string {
	if r == nil || text == "" {
		return text
	}
	return string(r.Bytes([]byte(text)))
}

// placeholder returns the replacement of a value in text. It removes control characters from the
// name, because an attacker who chose the name could otherwise write escape sequences to a
// terminal.
func placeholder(name string) string {
	clean := strings.Map(func(c rune) rune {
		if c <= ' ' || c > '~' || c == ']' {
			return '_'
		}
		return c
	}, name)
	return "[redacted:" + clean + "]"
}
