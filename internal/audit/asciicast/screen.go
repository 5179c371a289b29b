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
	seq   []byte   // bytes of the current sequence
	undo  []string // sequences that restore the terminal's state
}

type screenState int

const (
	ground     screenState = iota
	escape                 // after ESC
	control                // after ESC [
	text                   // after ESC ] and similar, until their end
	textEnd                // an ESC within such a string
	oneMore                // the next character belongs to the sequence
	characters             // after ESC ( or )
)

// maxSequence limits the length of a sequence that draws.
const maxSequence = 64

// Append appends the text and the drawing sequences of output to dst. A sequence may be split
// between calls. A UTF-8 character may not.
func (s *Screen) Append(dst []byte, output string) []byte {
	for _, r := range output {
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
	s.undo, s.state, s.seq = nil, ground, nil
	return out.String()
}

// next processes one character.
func (s *Screen) next(dst []byte, r rune) []byte {
	switch {
	case r == 0x18 || r == 0x1a: // cancel any sequence
		s.state = ground
		return dst
	case r >= 0x80 && r < 0xa0: // C1 controls: sequences of a single character
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

// escaped processes the character after ESC.
func (s *Screen) escaped(dst []byte, r rune) []byte {
	s.state = ground
	switch r {
	case '[':
		s.state, s.seq = control, s.seq[:0]
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

// controlled processes a character of a control sequence.
func (s *Screen) controlled(dst []byte, r rune) []byte {
	switch {
	case r == 0x1b:
		s.state = escape
	case r >= 0x20 && r < 0x40:
		if len(s.seq) <= maxSequence {
			s.seq = append(s.seq, byte(r))
		}
	case r >= 0x40 && r < 0x7f:
		s.state = ground
		if len(s.seq) <= maxSequence {
			return s.sequence(dst, string(s.seq), byte(r))
		}
	case r >= 0x7f:
		s.state = ground
	}
	return dst
}

// maxNumber limits the numbers in a sequence. A terminal that repeats a character two billion times
// would hang.
const maxNumber = 9999

// sequence passes a control sequence if it draws.
func (s *Screen) sequence(dst []byte, arguments string, final byte) []byte {
	full := "\x1b[" + arguments + string(rune(final))
	if rest, ok := strings.CutPrefix(arguments, "?"); ok {
		return s.private(dst, rest, final)
	}
	numbers, ok := numbersOf(arguments)
	if !ok {
		return dst
	}
	switch final {
	case 'm':
		return s.draw(dst, full, "\x1b[m")
	case 'r':
		return s.draw(dst, full, "\x1b[r")
	case 'h', 'l':
		if len(numbers) == 1 && numbers[0] == 4 { // insert mode; 2 would lock the keyboard
			return s.draw(dst, full, "\x1b[4l")
		}
	case 'T':
		if len(numbers) <= 1 { // scroll; five numbers track the mouse
			return append(dst, full...)
		}
	case '@', 'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I', 'J', 'K', 'L', 'M', 'P', 'S', 'X', 'Z', '`', 'a', 'b', 'd', 'e', 'f', 's', 'u':
		return append(dst, full...)
	}
	return dst
}

// modes maps each allowed mode to the sequence that resets it. Modes of the mouse, keys and pasting
// are not allowed, because they would still be on in the shell after the replay.
var modes = map[int]string{
	6: "\x1b[?6l", 7: "\x1b[?7h", 25: "\x1b[?25h",
	47: "\x1b[?47l", 1047: "\x1b[?1047l", 1048: "", 1049: "\x1b[?1049l", 2026: "\x1b[?2026l",
}

// private passes a control sequence of DEC, whose arguments begin with a question mark, if it
// draws.
func (s *Screen) private(dst []byte, arguments string, final byte) []byte {
	numbers, ok := numbersOf(arguments)
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
func (s *Screen) draw(dst []byte, sequence, undo string) []byte {
	if undo != "" && !slices.Contains(s.undo, undo) {
		s.undo = append(s.undo, undo)
	}
	return append(dst, sequence...)
}

// numbersOf parses numbers that are separated by semicolons or colons.
func numbersOf(arguments string) ([]int, bool) {
	if arguments == "" {
		return nil, true
	}
	var numbers []int
	for field := range strings.FieldsFuncSeq(arguments, func(r rune) bool { return r == ';' || r == ':' }) {
		n, err := strconv.Atoi(field)
		if err != nil || n < 0 || n > maxNumber {
			return nil, false
		}
		numbers = append(numbers, n)
	}
	return numbers, true
}
