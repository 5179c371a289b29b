package changeset

import (
	"io"
	"slices"
)

// Hider masks what must not be seen, and keeps its length.
type Hider interface {
	Bytes(b []byte) []byte
	Reader(r io.Reader) io.Reader
}

// Hide returns what masks now. A nil Hide, or one that returns nil, hides
// nothing.
type Hide func() Hider

func (h Hide) now() Hider {
	if h == nil {
		return nil
	}
	return h()
}

// bytes returns what may be seen of a text.
func (h Hide) bytes(text []byte) []byte {
	if m := h.now(); m != nil {
		return m.Bytes(text)
	}
	return text
}

// name returns what may be seen of a name. It is whole: a name that ends as a
// value begins is none that was cut off.
func (h Hide) name(name string) string {
	m := h.now()
	if m == nil || name == "" {
		return name
	}
	return string(m.Bytes([]byte(name + "\x00"))[:len(name)])
}

// Shown is what may be seen of a change. What is masked when it comes out has
// no sum: those of what is inside would let a guess be checked, those of what
// will be outside are not known yet.
func (c Change) Shown(h Hide) Change {
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

// CountMasked counts the files in which something was, or would be, masked.
func CountMasked(list []Change) int {
	n := 0
	for i := range list {
		if list[i].Has(Masked) {
			n++
		}
	}
	return n
}

// came is a change as it was fetched: with the sum of what is there to come out.
func (c Change) came(sum string) Change {
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
