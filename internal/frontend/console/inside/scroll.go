package inside

import "bytes"

const (
	// scrollback is how much earlier output of a terminal a new viewer gets.
	scrollback = 256 << 10
	// maxLag bounds how far a viewer may be behind. A slower one is disconnected, so that it delays
	// neither the program nor other viewers.
	maxLag = 1 << 20
)

// scroll is the newest output of a terminal. Positions count from its first byte.
type scroll struct {
	buf []byte
	end int64 // position after the last byte
}

func (s *scroll) start() int64 { return s.end - int64(len(s.buf)) }

// add appends output, and drops the oldest.
func (s *scroll) add(b []byte) {
	s.end += int64(len(b))
	if len(b) >= maxLag {
		s.buf = append(s.buf[:0], b[len(b)-maxLag:]...)
		return
	}
	// The buffer may grow to twice the size, so that moving the data is rare.
	if len(s.buf)+len(b) > 2*maxLag {
		s.buf = append(s.buf[:0], s.buf[len(s.buf)-(maxLag-len(b)):]...)
	}
	s.buf = append(s.buf, b...)
}

// from copies at most limit bytes from a position on. It reports false if the position is no longer
// in the buffer.
func (s *scroll) from(at int64, limit int) ([]byte, bool) {
	if at < s.start() {
		return nil, false
	}
	b := s.buf[at-s.start():]
	return bytes.Clone(b[:min(len(b), limit)]), true
}

// maxLineSearch bounds the search for the end of a line in the scrollback.
const maxLineSearch = 4 << 10

// replay returns the position at which a new viewer begins. It is the start of a line, if possible,
// so that no incomplete escape sequence is shown.
func (s *scroll) replay() int64 {
	at := max(s.start(), s.end-scrollback)
	if at == 0 {
		return 0 // all of it
	}
	head := s.buf[at-s.start():]
	if i := bytes.IndexByte(head[:min(len(head), maxLineSearch)], '\n'); i >= 0 {
		at += int64(i) + 1
	}
	return at
}
