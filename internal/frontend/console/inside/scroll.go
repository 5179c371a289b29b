package inside

import "bytes"

const (
	// scrollback is how much of what a terminal printed is shown to who comes
	// later.
	scrollback = 256 << 10
	// behind is how much a viewer may have to catch up with. Who falls further
	// back is cut off, and holds up neither the program nor the others.
	behind = 1 << 20
)

// scroll is the newest output of a terminal, by its place in all of it.
type scroll struct {
	kept []byte
	end  int64 // place behind the last byte
}

func (s *scroll) start() int64 { return s.end - int64(len(s.kept)) }

// add appends output, and forgets what is too old.
func (s *scroll) add(b []byte) {
	s.end += int64(len(b))
	if len(b) >= behind {
		s.kept = append(s.kept[:0], b[len(b)-behind:]...)
		return
	}
	// Twice the room, so that moving costs little for each byte.
	if len(s.kept)+len(b) > 2*behind {
		s.kept = append(s.kept[:0], s.kept[len(s.kept)-(behind-len(b)):]...)
	}
	s.kept = append(s.kept, b...)
}

// from copies at most limit bytes from a place on, or says that they are gone.
func (s *scroll) from(at int64, limit int) ([]byte, bool) {
	if at < s.start() {
		return nil, false
	}
	b := s.kept[at-s.start():]
	return bytes.Clone(b[:min(len(b), limit)]), true
}

// lineEnd is how far into the scrollback the end of a line is looked for.
const lineEnd = 4 << 10

// replay is where somebody who comes now begins: at a line, where there is
// one, so that no half of a sequence is shown.
func (s *scroll) replay() int64 {
	at := max(s.start(), s.end-scrollback)
	if at == 0 {
		return 0 // all of it
	}
	head := s.kept[at-s.start():]
	if i := bytes.IndexByte(head[:min(len(head), lineEnd)], '\n'); i >= 0 {
		at += int64(i) + 1
	}
	return at
}
