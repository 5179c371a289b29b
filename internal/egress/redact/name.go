package redact

import (
	"bytes"
	"sync"
)

// InName reports whether the name of a header or trailer contains a value in one of its forms, or
// ends with the beginning of one. It ignores case, because proxies change the case of names, and a
// value in the wrong case still reveals most of it. The nil Redactor has no values.
func (r *Redactor) InName(name string) bool {
	if r == nil {
		return false
	}
	a := r.inNames()
	at := uint32(0)
	for _, b := range []byte(name) {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		if at = a.next(at, b); a.nodes[at].found != 0 {
			return true
		}
	}
	return a.nodes[at].depth >= MinValue
}

// namesOf returns a function that builds the automaton of values in lower case on first use.
func namesOf(values []Value) func() *automaton {
	return sync.OnceValue(func() *automaton {
		t := newTrie()
		for i, v := range values {
			for _, f := range append(plainForms(v.Data), wrappedForms(v.Data)...) {
				t.add(bytes.ToLower(f), int32(i))
			}
		}
		return t.automaton(false)
	})
}
