package redact

import "slices"

// holdFrom is how many bytes of a value must have arrived before they are held. With a smaller
// number a stream would often stall, because its last byte happens to begin a key: "s" begins
// "sk-…". So a key that is split within its first bytes reveals at most five of them.
const holdFrom = 6

// Stream redacts bytes that arrive in pieces. A value that is split between pieces is redacted too:
// its beginning is held until a later byte, or the end, decides. It is not released after a time.
type Stream struct {
	t          *tables // nil redacts nothing
	sameLength bool

	// buf has the last bytes: the held ones, preceded by as many as a step may look back. Positions
	// count from the beginning of the stream.
	buf  []byte
	base int // position of buf[0]
	pos  int // scanned up to here
	out  int // output up to here

	plain, wrapped uint32 // nodes of the automata
	escape         bool   // an odd number of backslashes precedes pos
	tokens         []token
	spans          []span
}

// span is a range to redact. Spans are in order and do not overlap.
type span struct {
	start, end int
	pattern    int32
	shown      bool // its replacement was written
}

// Stream starts a stream.
func (r *Redactor) Stream() *Stream {
	if r == nil {
		return &Stream{}
	}
	return &Stream{t: r.tables(), sameLength: r.sameLength}
}

// Append processes the next piece and appends to dst what can be output.
func (s *Stream) Append(dst, piece []byte) []byte {
	if s.t == nil {
		return append(dst, piece...)
	}
	s.buf = append(s.buf, piece...)
	s.scan()
	dst = s.emit(dst, s.held())
	s.forget()
	return dst
}

// End appends what was held. A value that the end cuts off is redacted if it has at least MinValue
// bytes. The stream can then be used anew.
func (s *Stream) End(dst []byte) []byte {
	if s.t == nil {
		return dst
	}
	s.cut()
	dst = s.emit(dst, s.pos)
	*s = Stream{t: s.t, sameLength: s.sameLength, buf: s.buf[:0]}
	return dst
}

func (s *Stream) scan() {
	plain, wrapped := s.t.plain, s.t.wrapped
	buf := s.buf
	for i := s.pos - s.base; i < len(buf); i++ {
		if s.local(i) {
			if i = s.skipOrdinary(i); i == len(buf) {
				break
			}
		}
		b := buf[i]
		s.pos = s.base + i
		s.step(b)
		s.plain = plain.next(s.plain, b)
		separates := isSeparator(b) || s.escape && isEscaped(b)
		s.escape = b == '\\' && !s.escape
		if !separates {
			s.wrapped = wrapped.next(s.wrapped, b)
		}
		s.pos++
		for n := plain.nodes[s.plain].found; n != 0; n = plain.nodes[plain.nodes[n].fail].found {
			s.hit(plain.nodes[n])
		}
		for n := wrapped.nodes[s.wrapped].found; n != 0 && !separates; n = wrapped.nodes[wrapped.nodes[n].fail].found {
			if start, ok := s.back(int(wrapped.nodes[n].depth)); ok {
				s.redactRange(start, s.pos, wrapped.nodes[n].pattern)
			}
		}
	}
	s.pos = s.base + len(buf)
}

// hit handles the end of a plain pattern: a value, or the prefix of a rule.
func (s *Stream) hit(n node) {
	start := s.pos - int(n.depth)
	if int(n.pattern) < s.t.values {
		s.redactRange(start, s.pos, n.pattern)
		return
	}
	s.open(start, n.pattern)
}

// back returns where the last depth bytes began, not counting separators. It is not ok if there are
// more separators than other bytes, because a sandbox could otherwise make the stream hold an
// endless run of blanks.
func (s *Stream) back(depth int) (start int, ok bool) {
	i := s.pos - s.base
	for letters, others := 0, 0; letters < depth; {
		i--
		if i < 0 {
			return 0, false
		}
		if !s.separates(i) {
			letters++
		} else if others++; others > depth {
			return 0, false
		}
	}
	return s.base + i, true
}

// separates reports whether the byte at an index of buf is a separator.
func (s *Stream) separates(i int) bool {
	if !isEscaped(s.buf[i]) {
		return isSeparator(s.buf[i])
	}
	escaped := false
	for i--; i >= 0 && s.buf[i] == '\\'; i-- {
		escaped = !escaped
	}
	return escaped
}

// unfinished returns the longest beginning of a pattern with which the stream currently ends. It
// considers only patterns below limit and beginnings of at least least bytes.
func (s *Stream) unfinished(a *automaton, at uint32, least, limit int) (start int, n node, ok bool) {
	for ; at != 0; at = a.nodes[at].fail {
		n := a.nodes[at]
		if int(n.depth) < least {
			break
		}
		// Of all patterns through a node the first is stored, and values are added before rules.
		if n.child == 0 || int(n.through) >= limit {
			continue
		}
		start, ok := s.pos-int(n.depth), true
		if a.skip {
			start, ok = s.back(int(n.depth))
		}
		if ok {
			return start, n, true
		}
	}
	return 0, node{}, false
}

// held returns the position from which nothing may be output yet.
func (s *Stream) held() int {
	hold := s.pos
	if start, _, ok := s.unfinished(s.t.plain, s.plain, holdFrom, len(s.t.names)); ok {
		hold = min(hold, start)
	}
	if start, _, ok := s.unfinished(s.t.wrapped, s.wrapped, holdFrom, len(s.t.names)); ok {
		hold = min(hold, start)
	}
	for _, k := range s.tokens {
		if !k.certain && s.pos-k.start >= holdFrom {
			hold = min(hold, k.start)
		}
	}
	return max(hold, s.out)
}

// cut redacts the beginning of a value at the end of the stream, and candidates for tokens that are
// complete only because the stream ends.
func (s *Stream) cut() {
	if start, n, ok := s.unfinished(s.t.plain, s.plain, MinValue, s.t.values); ok {
		s.redactRange(start, s.pos, n.through)
	}
	if start, n, ok := s.unfinished(s.t.wrapped, s.wrapped, MinValue, s.t.values); ok {
		s.redactRange(start, s.pos, n.through)
	}
	for i := range s.tokens {
		s.tokens[i].finish(s)
	}
	s.tokens = s.tokens[:0]
}

// redactRange marks a range. Overlapping ranges are merged, under the name of the one that begins
// first.
func (s *Stream) redactRange(start, end int, pattern int32) {
	c := span{start: start, end: end, pattern: pattern}
	from := len(s.spans)
	for from > 0 && s.spans[from-1].end > start {
		from--
	}
	to := from
	for to < len(s.spans) && s.spans[to].start < end {
		o := s.spans[to]
		if o.shown || o.start < c.start || o.start == c.start && !s.better(c, o) {
			c.pattern = o.pattern
		}
		c.shown = c.shown || o.shown
		c.start, c.end = min(c.start, o.start), max(c.end, o.end)
		to++
	}
	s.spans = slices.Replace(s.spans, from, to, c)
}

// better prefers a value's name to a rule's, and a longer value's name to a shorter one's. Of two
// rules, the first to match names the span.
func (s *Stream) better(a, b span) bool {
	if int(a.pattern) >= s.t.values {
		return false
	}
	return int(b.pattern) >= s.t.values || a.end > b.end
}

// emit appends everything up to a position, redacted.
func (s *Stream) emit(dst []byte, to int) []byte {
	for i := range s.spans {
		c := &s.spans[i]
		if c.start >= to {
			break
		}
		if c.start > s.out {
			dst = append(dst, s.between(s.out, c.start)...)
			s.out = c.start
		}
		if !c.shown && !s.sameLength {
			dst = append(dst, placeholder(s.t.names[c.pattern])...)
		}
		c.shown = true
		for end := min(c.end, to); s.out < end; s.out++ {
			if s.sameLength {
				dst = append(dst, '*')
			}
		}
	}
	if s.out < to {
		dst = append(dst, s.between(s.out, to)...)
		s.out = to
	}
	// A span that ends here remains, because its token may continue.
	gone := 0
	for gone < len(s.spans) && s.spans[gone].end < s.out {
		gone++
	}
	s.spans = slices.Delete(s.spans, 0, gone)
	return dst
}

func (s *Stream) between(from, to int) []byte { return s.buf[from-s.base : to-s.base] }

// forget discards bytes to which no step looks back, if that is worth the copy.
func (s *Stream) forget() {
	drop := min(s.out, s.pos-s.t.history) - s.base
	if drop < 4096 && drop < len(s.buf)/2 || drop <= 0 {
		return
	}
	s.buf = s.buf[:copy(s.buf, s.buf[drop:])]
	s.base += drop
}
