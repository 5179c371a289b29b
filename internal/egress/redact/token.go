package redact

import "bytes"

// token is text that may be a token, because it began with a rule's prefix.
type token struct {
	rule    *rule
	pattern int32
	start   int
	body    int  // bytes after the prefix
	certain bool // it is a token: further bytes are redacted as they arrive
	ending  bool // PEM: the last line has begun
	seen
}

// seen is what a rule's check uses.
type seen struct {
	digits, uppers, lowers int
	dots, sinceDot         int
}

// open starts a candidate. There is at most one per rule, because a second one inside the first
// would have the same characters and end at the same place.
func (s *Stream) open(start int, pattern int32) {
	r := &rules[int(pattern)-s.t.values]
	for i, k := range s.tokens {
		if k.rule != r {
			continue
		}
		if k := &s.tokens[i]; r.pem {
			// Otherwise an invalid first line would hide the next one.
			k.body, k.ending = 0, false
			if !k.certain {
				k.start = start
			}
		}
		return
	}
	if r.word && !s.wordStart(start) {
		return
	}
	s.tokens = append(s.tokens, token{rule: r, pattern: pattern, start: start})
}

// wordStart reports whether a word begins at a position, because "task-force" contains no key. A
// character that belongs to an escape, as in \n or %3D, is not part of a word.
func (s *Stream) wordStart(start int) bool {
	i := start - s.base
	if i <= 0 || !alnum.has(s.buf[i-1]) {
		return true
	}
	return i >= 2 && s.buf[i-2] == '\\' || i >= 3 && s.buf[i-3] == '%'
}

// step passes the byte at s.pos to the candidates and removes those that end.
func (s *Stream) step(b byte) {
	remaining := s.tokens[:0]
	for _, k := range s.tokens {
		if k.step(s, b) {
			remaining = append(remaining, k)
		}
	}
	s.tokens = remaining
}

// step processes one byte, and reports whether the candidate continues.
func (k *token) step(s *Stream, b byte) (continues bool) {
	if k.rule.pem {
		return k.stepPEM(s, b)
	}
	if !k.rule.set.has(b) {
		k.finish(s)
		return false
	}
	k.body++
	k.note(b)
	switch {
	case k.certain:
		// Mark the span's last byte again, so that the two are merged.
		s.redactRange(s.pos-1, s.pos+1, k.pattern)
	case k.rule.exact:
		return k.body <= k.rule.least
	case k.body >= k.rule.least && (k.rule.check == nil || k.rule.check(k)):
		k.certain = true
		s.redactRange(k.start, s.pos+1, k.pattern)
	case k.body >= maxUncertain:
		return false
	}
	return true
}

// finish is called after the last character that the token can have.
func (k *token) finish(s *Stream) {
	if k.rule.exact && k.body == k.rule.least && (k.rule.check == nil || k.rule.check(k)) {
		s.redactRange(k.start, s.pos, k.pattern)
	}
}

// note counts a byte for the checks.
func (k *token) note(b byte) {
	k.sinceDot++
	switch {
	case '0' <= b && b <= '9':
		k.digits++
	case 'A' <= b && b <= 'Z':
		k.uppers++
	case 'a' <= b && b <= 'z':
		k.lowers++
	case b == '.':
		k.dots++
		k.sinceDot = 0
	}
}

const (
	// maxUncertain limits how many bytes of a candidate are held.
	maxUncertain = 4096
	// maxHeader limits the first and the last line of a PEM block.
	maxHeader = 64
	// maxPEM limits what one block may redact.
	maxPEM = 64 << 10
)

// stepPEM processes one byte of a private key between its BEGIN line and its END line. The
// replacement is written as soon as the BEGIN line is complete.
func (k *token) stepPEM(s *Stream, b byte) bool {
	k.body++
	if !k.certain {
		if b != '-' && b != ' ' && !alnum.has(b) || k.body > maxHeader {
			return false
		}
		line := s.buf[:s.pos-s.base+1]
		if bytes.HasSuffix(line, []byte("PRIVATE KEY-----")) || bytes.HasSuffix(line, []byte("PRIVATE KEY BLOCK-----")) {
			k.certain, k.body = true, 0
			s.redactRange(k.start, s.pos+1, k.pattern)
		}
		return true
	}
	if !pemBody.has(b) || k.body > maxPEM || k.ending && k.body > maxHeader {
		return false
	}
	s.redactRange(s.pos-1, s.pos+1, k.pattern)
	line := s.buf[:s.pos-s.base+1]
	switch {
	case !k.ending && bytes.HasSuffix(line, []byte("-----END ")):
		k.ending, k.body = true, 0
	case k.ending && bytes.HasSuffix(line, []byte("-----")):
		return false
	}
	return true
}
