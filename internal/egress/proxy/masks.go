package proxy

import "github.com/crannog/crannog/internal/egress/redact"

// masks is a body on its way through several redactors, one after the other.
type masks []*redact.Stream

// masks returns the redactors for an answer: first the one for the values at the time
// of the request, then the one for the newest values. A value that was taken away in
// between went out with the request, so the answer may echo it.
func (x *exchange) masks(newest *generation) masks {
	var m masks
	for _, r := range []*redact.Redactor{x.gen.bytes, newest.bytes} {
		if r != nil && (len(m) == 0 || newest != x.gen) {
			m = append(m, r.Stream())
		}
	}
	return m
}

// mask returns what can be passed on of a piece, in buf's room; at the end, of all.
// Only the last redactor of several writes into buf.
func (m masks) mask(buf, piece []byte, end bool) []byte {
	for i, s := range m {
		var out []byte
		if i == len(m)-1 {
			out = buf
		}
		out = s.Append(out, piece)
		if end {
			out = s.End(out)
		}
		piece = out
	}
	return piece
}
