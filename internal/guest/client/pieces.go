package client

import (
	"strings"
	"unicode/utf8"
)

// pieces is text in blocks that are never moved: growing one buffer would take several times the
// kept size. Invalid UTF-8 becomes U+FFFD when it is added, as by strings.ToValidUTF8, so that no
// second copy is ever made.
type pieces struct {
	blocks [][]byte
	size   int64
	cut    []byte // the beginning of a character whose rest has not come
	bad    bool   // the last byte was invalid and was replaced
}

// blockSize is how much a new block holds.
const blockSize = 64 << 10

// replacement stands for a run of bytes that are not UTF-8.
const replacement = "\uFFFD"

// add adds b, and returns how many bytes it kept.
func (p *pieces) add(b []byte) int64 {
	before := p.size
	for len(b) > 0 {
		if len(p.cut) > 0 {
			b = p.restoreLengths(b)
			continue
		}
		n := validPrefix(b)
		p.keep(b[:n])
		if b = b[n:]; len(b) == 0 {
			break
		}
		if !utf8.FullRune(b) {
			p.cut = append(p.cut, b...)
			break
		}
		p.replace()
		b = b[1:]
	}
	return p.size - before
}

// restoreLengths adds the next bytes of a character that was cut, and returns the rest.
func (p *pieces) restoreLengths(b []byte) []byte {
	next := append(p.cut, b[0])
	if !utf8.FullRune(next) {
		p.cut = next
		return b[1:]
	}
	p.cut = next[:0]
	if r, n := utf8.DecodeRune(next); r == utf8.RuneError && n == 1 {
		p.replace()
		return b // it may begin with a character of its own
	}
	p.keep(next)
	return b[1:]
}

// validPrefix returns the length of b's longest prefix that is UTF-8.
func validPrefix(b []byte) int {
	n := 0
	for n < len(b) {
		if b[n] < utf8.RuneSelf {
			n++
			continue
		}
		r, size := utf8.DecodeRune(b[n:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		n += size
	}
	return n
}

func (p *pieces) replace() {
	if !p.bad {
		p.keep([]byte(replacement))
		p.bad = true
	}
}

func (p *pieces) keep(b []byte) {
	if len(b) > 0 {
		p.bad = false
	}
	p.size += int64(len(b))
	for len(b) > 0 {
		if last := len(p.blocks) - 1; last < 0 || len(p.blocks[last]) == cap(p.blocks[last]) {
			// The first blocks are small, because most output is.
			p.blocks = append(p.blocks, make([]byte, 0, min(blockSize, max(len(b), 512<<min(len(p.blocks), 7)))))
		}
		last := &p.blocks[len(p.blocks)-1]
		n := min(len(b), cap(*last)-len(*last))
		*last = append(*last, b[:n]...)
		b = b[n:]
	}
}

// text returns everything as text, and frees the blocks.
func (p *pieces) text() string {
	if len(p.cut) > 0 {
		p.cut = nil
		p.replace()
	}
	var all strings.Builder
	all.Grow(int(p.size))
	for i, b := range p.blocks {
		all.Write(b)
		p.blocks[i] = nil
	}
	*p = pieces{}
	return all.String()
}
