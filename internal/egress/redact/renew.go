package redact

import "slices"

// Renew continues the stream with another Redactor. Bytes that are held remain held. If the stream
// has already output the beginning of a value, it redacts the rest of that value. Renew with a nil
// Redactor changes nothing.
func (s *Stream) Renew(r *Redactor) {
	if r == nil {
		return
	}
	next := r.Stream()
	if next.t == s.t && next.sameLength == s.sameLength {
		return
	}
	// The new tables process the bytes again that the old ones held.
	next.buf, next.base, next.pos, next.out = s.buf, s.base, s.base, s.base
	next.scan()
	next.out = s.out
	next.spans = slices.DeleteFunc(next.spans, func(c span) bool { return c.end <= s.out })
	*s = *next
}
