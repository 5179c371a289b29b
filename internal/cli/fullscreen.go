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
	active   bool   // the program uses the alternate screen
	sequence []byte // an incomplete escape sequence, with its ESC
	waiting  []func()
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
	if !s.active {
		s.runWaiting()
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
		s.active = false
	case n == 1 && c == '[', n == 2 && c == '?', n > 2 && n < maxModes && (c >= '0' && c <= '9' || c == ';'):
		s.sequence = append(s.sequence, c)
		return
	case n > 3 && (c == 'h' || c == 'l'):
		modes := strings.Split(string(s.sequence[3:]), ";")
		if slices.ContainsFunc(modes, func(m string) bool { return slices.Contains(alternate, m) }) {
			s.active = c == 'h'
		}
	}
	s.sequence = s.sequence[:0]
}

// runWaiting calls the waiting functions. The caller holds s.mu.
func (s *fullScreen) runWaiting() {
	for _, do := range s.waiting {
		do()
	}
	s.waiting = nil
}

// when calls do now, or after the program has left the alternate screen. A nil fullScreen calls do
// now.
func (s *fullScreen) when(do func()) {
	if s == nil {
		do()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active {
		s.waiting = append(s.waiting, do)
		return
	}
	do()
}

// left is called when the program has ended, even if it did not leave the alternate screen.
func (s *fullScreen) left() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = false
	s.runWaiting()
}
