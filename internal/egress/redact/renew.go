package redact

import "slices"

// Renew lets the stream go on under another Redactor. What is held stays
// held, and a value whose beginning went out before is still masked from here
// on. A nil Redactor changes nothing: what is held is held by the old one.
func (s *Stream) Renew(r *Redactor) {
	if r == nil {
		return
	}
	next := r.Stream()
	if next.t == s.t && next.sameLength == s.sameLength {
		return
	}
	// What the old tables kept is read again by the new ones.
	next.buf, next.base, next.pos, next.out = s.buf, s.base, s.base, s.base
	next.scan()
	next.out = s.out
	next.spans = slices.DeleteFunc(next.spans, func(c span) bool { return c.end <= s.out })
	*s = *next
}
