package proxy

import "github.com/crannog/crannog/internal/egress/redact"

// masks passes a body through several redactors, one after the other.
type masks []*redact.Stream

// masks returns the redactors for a response: first for the values at the time of the request, then
// for the newest ones. A value that was removed in between was sent with the request, so the
// response may echo it.
func (x *exchange) masks(newest *generation) masks {
	var m masks
	for _, r := range []*redact.Redactor{x.gen.bytes, newest.bytes} {
		if r != nil && (len(m) == 0 || newest != x.gen) {
			m = append(m, r.Stream())
		}
	}
	return m
}

// mask returns the part of a piece that can be passed on, in buf's memory. At the end it returns
// the rest. Only the last of several redactors writes into buf.
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
