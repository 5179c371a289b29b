package redact

import "slices"

// Renew continues the stream with another Redactor. Held bytes stay held, and a value whose
// beginning has been output already is still redacted from here on. A nil Redactor does not apply
// to held bytes, which the old one handles.
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
