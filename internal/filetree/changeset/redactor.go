package changeset

import (
	"io"
	"slices"
)

// Redactor redacts secrets and keeps the length of the text.
type Redactor interface {
	Bytes(b []byte) []byte
	Reader(r io.Reader) io.Reader
}

// RedactorOf returns the present redactor. A nil function, or one that returns nil, redacts
// nothing.
type RedactorOf func() Redactor

// current returns the present redactor, or nil.
func (h RedactorOf) current() Redactor {
	if h == nil {
		return nil
	}
	return h()
}

// bytes returns a text with secrets redacted.
func (h RedactorOf) bytes(text []byte) []byte {
	if m := h.current(); m != nil {
		return m.Bytes(text)
	}
	return text
}

// name returns a name with secrets redacted. A name is complete, so the beginning of a secret at
// its end is not a truncated secret.
func (h RedactorOf) name(name string) string {
	m := h.current()
	if m == nil || name == "" {
		return name
	}
	return string(m.Bytes([]byte(name + "\x00"))[:len(name)])
}

// Shown returns a change as it may be shown. A file that will be redacted has no checksum here: the
// checksum of the original could be used to verify a guess of the secret, and that of the redacted
// file is not known yet.
func (c Change) Shown(h RedactorOf) Change {
	c.Path, c.Because = h.name(c.Path), h.name(c.Because)
	for _, e := range []**Entry{&c.Old, &c.New, &c.Outside} {
		if *e == nil {
			continue
		}
		shown := **e
		shown.Path, shown.Target = h.name(shown.Path), h.name(shown.Target)
		if c.Has(Masked) {
			shown.Sum = ""
		}
		*e = &shown
	}
	return c
}

// CountMasked counts the files that contain a secret.
func CountMasked(list []Change) int {
	n := 0
	for i := range list {
		if list[i].Has(Masked) {
			n++
		}
	}
	return n
}

// withSum returns a fetched change with the checksum of the exported content.
func (c Change) withSum(sum string) Change {
	if sum == c.New.Sum {
		return c
	}
	e := *c.New
	e.Sum = sum
	c.New = &e
	if !c.Has(Masked) {
		c.Flags = append(slices.Clone(c.Flags), Masked)
	}
	return c
}
