package asciicast

import (
	"slices"
	"strconv"
	"strings"
)

// Screen filters terminal sequences: it passes text and sequences that draw, and removes all
// others. A program in a sandbox chose what a recording contains, and a replay shows it on the
// user's own terminal. Removed sequences set the title or the clipboard, make links, make the
// terminal send input as if the user had typed it, change its keys, or turn its printer on. Text
// for decisions (package approval) and for models (package mcpserver) contains no sequences at all.
type Screen struct {
	state screenState
	held  []byte // bytes of the current sequence
	undo  []string
}

type screenState int

const (
	ground     screenState = iota
	escape                 // after ESC
	control                // after ESC [
	text                   // after ESC ] and similar, until their end
	textEnd                // an ESC within such a string
	oneMore                // the next letter belongs to the sequence
	characters             // after ESC ( or )
)

// maxSequence limits the length of a sequence that draws.
const maxSequence = 64

// Append appends the visible part of show to dst. A sequence may be split between calls. A UTF-8
// character may not.
func (s *Screen) Append(dst []byte, show string) []byte {
	for _, r := range show {
		dst = s.next(dst, r)
	}
	return dst
}

// Restore returns the sequences that restore the terminal's state before the replay.
func (s *Screen) Restore() string {
	var out strings.Builder
	for _, u := range slices.Backward(s.undo) {
		out.WriteString(u)
	}
	s.undo, s.state, s.held = nil, ground, nil
	return out.String()
}

func (s *Screen) next(dst []byte, r rune) []byte {
	switch {
	case r == 0x18 || r == 0x1a: // cancel any sequence
		s.state = ground
		return dst
	case r >= 0x80 && r < 0xa0: // C1 controls: the same sequences as one letter
		if s.state != text && s.state != textEnd {
			s.state = ground
		}
		return dst
	}
	switch s.state {
	case ground:
		return s.plain(dst, r)
	case escape:
		return s.escaped(dst, r)
	case control:
		return s.controlled(dst, r)
	case oneMore:
		s.state = ground
	case characters:
		if s.state = ground; strings.ContainsRune("0AB12", r) {
			dst = s.draw(dst, "\x1b("+string(r), "\x1b(B")
		}
	case text:
		switch r {
		case 0x07:
			s.state = ground
		case 0x1b:
			s.state = textEnd
		}
	case textEnd:
		if s.state = ground; r != '\\' {
			s.state = escape
			return s.escaped(dst, r)
		}
	}
	return dst
}

// plain passes printable characters, and the control characters that move the cursor within the
// screen.
func (s *Screen) plain(dst []byte, r rune) []byte {
	switch {
	case r == 0x1b:
		s.state = escape
	case r >= ' ' && r != 0x7f, strings.ContainsRune("\a\b\t\n\v\f\r", r):
		return append(dst, string(r)...)
	}
	return dst
}

func (s *Screen) escaped(dst []byte, r rune) []byte {
	s.state = ground
	switch r {
	case '[':
		s.state, s.held = control, s.held[:0]
	case ']', 'P', 'X', '^', '_', 'k':
		s.state = text
	case '(':
		s.state = characters
	case ')', '*', '+', '-', '.', '/', '#', ' ', '%':
		s.state = oneMore
	case 0x1b:
		s.state = escape
	case '7', '8', 'D', 'E', 'M', 'H':
		return append(dst, 0x1b, byte(r))
	}
	return dst
}

func (s *Screen) controlled(dst []byte, r rune) []byte {
	switch {
	case r == 0x1b:
		s.state = escape
	case r >= 0x20 && r < 0x40:
		if len(s.held) <= maxSequence {
			s.held = append(s.held, byte(r))
		}
	case r >= 0x40 && r < 0x7f:
		s.state = ground
		if len(s.held) <= maxSequence {
			return s.sequence(dst, string(s.held), byte(r))
		}
	case r >= 0x7f:
		s.state = ground
	}
	return dst
}

// maxCount limits the numbers in a sequence. A terminal that repeats a character two billion times
// would hang.
const maxCount = 9999

// sequence passes a control sequence if it draws.
func (s *Screen) sequence(dst []byte, arguments string, final byte) []byte {
	whole := "\x1b[" + arguments + string(rune(final))
	if rest, ok := strings.CutPrefix(arguments, "?"); ok {
		return s.private(dst, rest, final)
	}
	numbers, ok := countsOf(arguments)
	if !ok {
		return dst
	}
	switch final {
	case 'm':
		return s.draw(dst, whole, "\x1b[m")
	case 'r':
		return s.draw(dst, whole, "\x1b[r")
	case 'h', 'l':
		if len(numbers) == 1 && numbers[0] == 4 { // insert; 2 would lock the keys
			return s.draw(dst, whole, "\x1b[4l")
		}
	case 'T':
		if len(numbers) <= 1 { // five numbers follow the mouse
			return append(dst, whole...)
		}
	case '@', 'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I', 'J', 'K', 'L', 'M', 'P', 'S', 'X', 'Z', '`', 'a', 'b', 'd', 'e', 'f', 's', 'u':
		return append(dst, whole...)
	}
	return dst
}

// modes maps each allowed mode to the sequence that resets it. Modes of the mouse, keys and pasting
// are not allowed, because they would still be on in the shell after the replay.
var modes = map[int]string{
	6: "\x1b[?6l", 7: "\x1b[?7h", 25: "\x1b[?25h",
	47: "\x1b[?47l", 1047: "\x1b[?1047l", 1048: "", 1049: "\x1b[?1049l", 2026: "\x1b[?2026l",
}

func (s *Screen) private(dst []byte, arguments string, final byte) []byte {
	numbers, ok := countsOf(arguments)
	if !ok {
		return dst
	}
	switch final {
	case 'J', 'K':
		return append(dst, "\x1b[?"+arguments+string(rune(final))...)
	case 'h', 'l':
		for _, n := range numbers {
			if undo, ok := modes[n]; ok {
				dst = s.draw(dst, "\x1b[?"+strconv.Itoa(n)+string(rune(final)), undo)
			}
		}
	}
	return dst
}

// draw passes a sequence and records how to undo it.
func (s *Screen) draw(dst []byte, whole, undo string) []byte {
	if undo != "" && !slices.Contains(s.undo, undo) {
		s.undo = append(s.undo, undo)
	}
	return append(dst, whole...)
}

// countsOf parses numbers that are separated by semicolons or colons.
func countsOf(arguments string) ([]int, bool) {
	if arguments == "" {
		return nil, true
	}
	var numbers []int
	for one := range strings.FieldsFuncSeq(arguments, func(r rune) bool { return r == ';' || r == ':' }) {
		n, err := strconv.Atoi(one)
		if err != nil || n < 0 || n > maxCount {
			return nil, false
		}
		numbers = append(numbers, n)
	}
	return numbers, true
}
