package asciicast

import (
	"strings"
	"testing"
)

// Sequences that draw are passed unchanged. Sequences that act on the terminal or make it answer
// are removed.
func TestScreenPassesOnlyDrawingSequences(t *testing.T) {
	for _, drawn := range []string{
		"plain é 😀\r\n\tx\b\a", "\x1b[1;38;5;196mred\x1b[m", "\x1b[38:2::1:2:3m", "\x1b[2J\x1b[H\x1b[10;20f\x1b[K\x1b[?25l\x1b[?1049h\x1b7\x1b8\x1bM",
		"\x1b[3;10r\x1b[2L\x1b[2@\x1b[5X", "\x1b(0lqk\x1b(B", "\x1b[?2J",
	} {
		var s Screen
		if got := string(s.Append(nil, drawn)); got != drawn {
			t.Errorf("%q became %q", drawn, got)
		}
	}
	for name, attack := range map[string]string{
		"title": "\x1b]0;pwned\x07", "title with ST": "\x1b]2;pwned\x1b\\", "clipboard": "\x1b]52;c;cm0gLXJm\x07", "link": "\x1b]8;;http://evil\x1b\\",
		"name of screen": "\x1bkname\x1b\\", "device control": "\x1bP$qm\x1b\\", "terminfo": "\x1bP+q544e\x1b\\", "privacy": "\x1b^x\x1b\\", "application command": "\x1b_Gx\x1b\\",
		"start of string": "\x1bXx\x1b\\", "primary attributes": "\x1b[c", "secondary attributes": "\x1b[>c", "tertiary attributes": "\x1b[=c", "identify": "\x1bZ", "enquiry": "\x05",
		"cursor report": "\x1b[6n", "state": "\x1b[?6n", "window": "\x1b[21t", "iconify": "\x1b[2t", "parameters": "\x1b[x", "mode query": "\x1b[?2026$p",
		"mouse": "\x1b[?1000h", "all motion": "\x1b[?1003;1006h", "paste": "\x1b[?2004h", "focus": "\x1b[?1004h", "keys": "\x1b[?1h", "keypad": "\x1b=", "lock": "\x1b[2h",
		"other keys": "\x1b[>4;2m", "kitty keys": "\x1b[>1u", "kitty query": "\x1b[?u", "print": "\x1b[5i", "print screen": "\x1b[?5i", "reset": "\x1bc", "soft reset": "\x1b[!p",
		"repeat": "\x1b[2147483647b", "far": "\x1b[99999999C", "highlight": "\x1b[1;1;1;1;1T", "eight bit": "\u009b6n\u009d0;x\u009c", "delete": "\x7f",
		"character set": "\x1b%G", "align": "\x1b#8", "announce": "\x1b F", "cancelled": "\x1b[6\x18", "twice": "\x1b\x1b]0;x\x07", "long": "\x1b[" + strings.Repeat("1;", 100) + "m",
		"inside another": "\x1b[1\x1b]0;x\x07", "macro": "\x1b[1*z", "shift": "\x0e",
	} {
		var s Screen
		got := string(s.Append([]byte("<"), attack+">"))
		got = strings.NewReplacer("6n", "", "0;x", "").Replace(got) // plain text is harmless
		if got != "<>" && (name != "cancelled" || got != "<>") {
			t.Errorf("%s: got %q, want only text", name, got)
		}
		// The same text, with a call for each character.
		var cut Screen
		var out []byte
		for _, r := range attack + ">" {
			out = cut.Append(out, string(r))
		}
		if strings.ContainsAny(string(out), "\x1b\x05\x7f\x0e") {
			t.Errorf("%s, one character at a time: got %q", name, out)
		}
	}
	// One allowed mode among several is passed.
	var s Screen
	if got := string(s.Append(nil, "\x1b[?25;1000l")); got != "\x1b[?25l" {
		t.Errorf("one allowed mode of two: got %q, want only mode 25", got)
	}
}

func TestScreenRestoresState(t *testing.T) {
	var s Screen
	s.Append(nil, "\x1b[?1049h\x1b[?25l\x1b[31m\x1b[31m\x1b]0;unfinished")
	if got := s.Restore(); got != "\x1b[m\x1b[?25h\x1b[?1049l" {
		t.Errorf("Restore: got %q, want the reset of colour, cursor and screen", got)
	}
	if got := s.Restore(); got != "" {
		t.Errorf("second Restore: got %q, want nothing", got)
	}
	if got := string(s.Append(nil, "x")); got != "x" {
		t.Errorf("text after Restore: got %q, want x", got)
	}
}

// FuzzScreen: no sequence that acts on the terminal is passed, however it is written.
func FuzzScreen(f *testing.F) {
	f.Add("a\x1b]0;b\x07c\x1b[?25l\x1b[1;31m\x1b[6n")
	f.Add("\x1b\x1b[\x1bP\x1b\\\u009b5n")
	f.Fuzz(func(t *testing.T, text string) {
		var s Screen
		out := string(s.Append(nil, text))
		for i := range out {
			rest, ok := strings.CutPrefix(out[i:], "\x1b")
			if !ok {
				continue
			}
			if rest == "" || !strings.ContainsRune("[(78DEMH", rune(rest[0])) {
				t.Fatalf("Append of %q passed %q", text, out[i:])
			}
			if rest[0] == '[' {
				end := strings.IndexFunc(rest[1:], func(r rune) bool { return r >= 0x40 && r < 0x7f })
				if end < 0 || strings.ContainsRune("cntixpqzu"[:8], rune(rest[1+end])) || strings.ContainsAny(rest[1:1+end], "<=> !$*\"'") {
					t.Fatalf("Append of %q passed %q", text, out[i:])
				}
			}
		}
		for _, r := range out {
			if r >= 0x80 && r < 0xa0 || r == 0x7f || r == 5 || r == 0x0e || r == 0x0f {
				t.Fatalf("Append of %q passed %q", text, out)
			}
		}
	})
}
