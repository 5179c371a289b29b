package redact

// skip has the bytes with which a pattern may begin. With it a stream can skip ordinary text
// without running the automata for each byte.
//
// The state between two bytes is local if at most the last byte belongs to the beginning of a
// pattern. Then that byte alone determines both nodes. From a local state, a byte leads to a local
// state again unless the two bytes are a pair that begins a pattern. Even then the state becomes
// local again if the next byte is not the pattern's third. Every pattern has at least three bytes.
type skip struct {
	pairs   bits
	triples bits // a hash set: it may have false positives
}

// bits has one bit for each 16-bit number.
type bits [1 << 16 / 64]uint64

func (b *bits) set(i uint16)      { b[i>>6] |= 1 << (i & 63) }
func (b *bits) has(i uint16) bool { return b[i>>6]>>(i&63)&1 != 0 }

func pair(a, b byte) uint16 { return uint16(a)<<8 | uint16(b) }

// triple is the upper half of a product, in which each byte affects all bits.
func triple(a, b, c byte) uint16 {
	return uint16((uint32(a)<<16 | uint32(b)<<8 | uint32(c)) * 0x9e3779b1 >> 16)
}

// newSkip reads the first bytes of all patterns from the automata. It returns nil if a pattern is
// too short.
func newSkip(plain, wrapped *automaton) *skip {
	s := &skip{}
	longEnough := plain.begin(s.add) && wrapped.begin(func(a, b, c byte) {
		s.add(a, b, c)
		// Separators may be between the bytes. After two of them, or after a backslash, the
		// automaton decides.
		for _, x := range wrappers {
			s.add(a, b, x)
			s.add(a, x, b)
			for _, y := range wrappers {
				s.add(a, x, y)
			}
		}
	})
	if !longEnough {
		return nil
	}
	// A backslash may begin a separator, so it is never skipped.
	for a := range 256 {
		s.pairs.set(pair(byte(a), '\\'))
	}
	return s
}

func (s *skip) add(a, b, c byte) {
	s.pairs.set(pair(a, b))
	s.triples.set(triple(a, b, c))
}

// wrappers are all bytes that may begin a separator.
var wrappers = [...]byte{'\n', '\r', ' ', '\t', '\\'}

// begin calls add for the first three bytes of all patterns. It returns false if a pattern is
// shorter.
func (a *automaton) begin(add func(a, b, c byte)) bool {
	n := a.nodes
	for i := n[0].child; i != 0; i = n[i].sibling {
		for j := n[i].child; j != 0; j = n[j].sibling {
			if n[i].pattern >= 0 || n[j].pattern >= 0 {
				return false
			}
			for k := n[j].child; k != 0; k = n[k].sibling {
				add(n[i].letter, n[j].letter, n[k].letter)
			}
		}
	}
	return true
}

// local reports whether the state before buf[i] is local, as skip defines it.
func (s *Stream) local(i int) bool {
	if s.t.skip == nil || i == 0 || len(s.tokens) > 0 || s.escape {
		return false
	}
	plain, wrapped := s.t.nodesOf(s.buf[i-1])
	return s.plain == plain && s.wrapped == wrapped
}

// nodesOf returns the nodes of a local state.
func (t *tables) nodesOf(last byte) (plain, wrapped uint32) {
	if plain = t.plain.rows[last]; !isSeparator(last) {
		wrapped = t.wrapped.rows[last]
	}
	return plain, wrapped
}

// skipOrdinary skips bytes that lead from a local state to local states, starting at index i. It
// returns the index at which a pattern may have begun.
func (s *Stream) skipOrdinary(i int) int {
	skip, buf := s.t.skip, s.buf
	last := uint16(buf[i-1])
	for ; i < len(buf); i++ {
		last = last<<8 | uint16(buf[i])
		if !skip.pairs.has(last) {
			continue
		}
		b := byte(last)
		if b == '\\' || i+1 == len(buf) || skip.triples.has(triple(byte(last>>8), b, buf[i+1])) {
			break
		}
	}
	s.plain, s.wrapped = s.t.nodesOf(buf[i-1])
	return i
}
