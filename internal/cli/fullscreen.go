package cli

import (
	"io"
	"slices"
	"strings"
	"sync"
)

// fullScreen passes output on to a terminal and detects whether the program uses the alternate
// screen. Messages wait until the program leaves it, because they would be drawn over the program's
// screen.
type fullScreen struct {
	out io.Writer

	mu       sync.Mutex
	uses     bool
	sequence []byte // an incomplete escape sequence, with its ESC
	held     []func()
}

// alternate are the terminal modes that switch to the alternate screen.
var alternate = []string{"47", "1047", "1049"}

// maxModes bounds the length of a parsed sequence.
const maxModes = 64

// Write implements io.Writer.
func (s *fullScreen) Write(p []byte) (int, error) {
	n, err := s.out.Write(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range p {
		s.parse(c)
	}
	if !s.uses {
		s.tell()
	}
	return n, err
}

// parse parses the sequences ESC [ ? modes h and l, and ESC c, the full reset.
func (s *fullScreen) parse(c byte) {
	switch n := len(s.sequence); {
	case c == 0x1b:
		s.sequence = append(s.sequence[:0], c)
		return
	case n == 0:
		return
	case n == 1 && c == 'c':
		s.uses = false
	case n == 1 && c == '[', n == 2 && c == '?', n > 2 && n < maxModes && (c >= '0' && c <= '9' || c == ';'):
		s.sequence = append(s.sequence, c)
		return
	case n > 3 && (c == 'h' || c == 'l'):
		modes := strings.Split(string(s.sequence[3:]), ";")
		if slices.ContainsFunc(modes, func(m string) bool { return slices.Contains(alternate, m) }) {
			s.uses = c == 'h'
		}
	}
	s.sequence = s.sequence[:0]
}

// tell calls the waiting functions. The caller holds s.mu.
func (s *fullScreen) tell() {
	for _, say := range s.held {
		say()
	}
	s.held = nil
}

// when calls say now, or after the program has left the alternate screen. A nil fullScreen calls it
// now.
func (s *fullScreen) when(say func()) {
	if s == nil {
		say()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uses {
		s.held = append(s.held, say)
		return
	}
	say()
}

// left is called when the program has ended, even if it did not leave the alternate screen.
func (s *fullScreen) left() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses = false
	s.tell()
}
