package process

import "strings"

// pieces are output as it came, in blocks that are never moved: growing one
// buffer would take several times what is kept.
type pieces [][]byte

// blockSize is how much a new block holds.
const blockSize = 64 << 10

func (p *pieces) add(b []byte) {
	for len(b) > 0 {
		if last := len(*p) - 1; last < 0 || len((*p)[last]) == cap((*p)[last]) {
			// The first ones are small, as most output is.
			*p = append(*p, make([]byte, 0, min(blockSize, max(len(b), 512<<min(len(*p), 7)))))
		}
		last := &(*p)[len(*p)-1]
		n := min(len(b), cap(*last)-len(*last))
		*last = append(*last, b[:n]...)
		b = b[n:]
	}
}

// text returns all as text.
func (p *pieces) text() string {
	n := 0
	for _, b := range *p {
		n += len(b)
	}
	var all strings.Builder
	all.Grow(n)
	for _, b := range *p {
		all.Write(b)
	}
	return all.String()
}
