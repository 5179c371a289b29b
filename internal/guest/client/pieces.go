package client

import (
	"strings"
	"unicode/utf8"
)

// pieces is a text buffer made of blocks. Growing a single buffer would need several times the
// memory. Invalid UTF-8 is replaced by U+FFFD when it is added, as by strings.ToValidUTF8, so that
// no second copy is needed.
type pieces struct {
	blocks [][]byte
	size   int64
	cut    []byte // beginning of a character whose remaining bytes were not added yet
	bad    bool   // the last byte was invalid and was replaced
}

// blockSize is the size of a block.
const blockSize = 64 << 10

// replacement replaces a run of bytes that are not valid UTF-8.
const replacement = "\uFFFD"

// add appends b and returns the number of bytes that it stored.
func (p *pieces) add(b []byte) int64 {
	before := p.size
	for len(b) > 0 {
		if len(p.cut) > 0 {
			b = p.completeRune(b)
			continue
		}
		n := validPrefix(b)
		p.store(b[:n])
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

// completeRune adds the remaining bytes of a character that was split between two writes, and
// returns the rest of b.
func (p *pieces) completeRune(b []byte) []byte {
	next := append(p.cut, b[0])
	if !utf8.FullRune(next) {
		p.cut = next
		return b[1:]
	}
	p.cut = next[:0]
	if r, n := utf8.DecodeRune(next); r == utf8.RuneError && n == 1 {
		p.replace()
		return b // b may begin with a new character
	}
	p.store(next)
	return b[1:]
}

// validPrefix returns the length of the longest prefix of b that is valid UTF-8.
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

// replace adds a replacement character, unless the last bytes were replaced too.
func (p *pieces) replace() {
	if !p.bad {
		p.store([]byte(replacement))
		p.bad = true
	}
}

// store adds valid text to the blocks.
func (p *pieces) store(b []byte) {
	if len(b) > 0 {
		p.bad = false
	}
	p.size += int64(len(b))
	for len(b) > 0 {
		if last := len(p.blocks) - 1; last < 0 || len(p.blocks[last]) == cap(p.blocks[last]) {
			// The first blocks are small, because most outputs are small.
			p.blocks = append(p.blocks, make([]byte, 0, min(blockSize, max(len(b), 512<<min(len(p.blocks), 7)))))
		}
		last := &p.blocks[len(p.blocks)-1]
		n := min(len(b), cap(*last)-len(*last))
		*last = append(*last, b[:n]...)
		b = b[n:]
	}
}

// text returns the whole text and frees the blocks.
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
