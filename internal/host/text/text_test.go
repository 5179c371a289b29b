package text_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/crannog/crannog/internal/host/text"
)

const big = 1 << 20

// cleaners lists all functions that make text harmless.
var cleaners = []struct {
	name string
	do   func(string) string
}{
	{"Strict", func(s string) string { return text.Strict(s, big) }},
	{"Line", func(s string) string { return text.Line(s, big) }},
	{"Lines", text.Lines},
	{"Output", text.Output},
	{"InPlace", text.InPlace},
	{"ASCII", func(s string) string { return text.ASCII(s, big) }},
	{"EscapeJSON", func(s string) string { return string(text.EscapeJSON([]byte(s))) }},
}

const (
	m    = "\ufffd" // the mark that replaces a character
	gone = ""       // the character is dropped
	same = "="      // the text stays unchanged
)

// A4: text of a sandbox cannot move a cursor, reverse the writing direction, start a line or be
// hidden from the person who decides by it. The table shows where the functions agree and differ.
func TestTextIsInert(t *testing.T) {
	for _, row := range []struct {
		name, in string
		want     [7]string // in the order of cleaners
	}{
		{"a letter", "é", [7]string{same, same, same, same, same, "?", same}},
		{"a letter of many", "漢", [7]string{same, same, same, same, same, "?", same}},
		{"escape", "\x1bM", [7]string{m + "M", m + "M", m + "M", gone, "␛M", "?M", same}}, // JSON's encoder has escaped it
		{"a sequence", "\x1b[31m", [7]string{m + "[31m", m + "[31m", m + "[31m", gone, "␛[31m", "?[31m", same}},
		{"a title", "\x1b]0;t\x07", [7]string{m + "]0;t" + m, m + "]0;t" + m, m + "]0;t" + m, gone, "␛]0;t␇", "?]0;t?", same}},
		{"C1", "\u009b", [7]string{m, m, m, m, m, "?", `\u009b`}},
		{"next line", "\u0085", [7]string{m, " ", m, m, m, "?", `\u0085`}},
		{"delete", "\x7f", [7]string{m, m, m, gone, "␡", "?", `\u007f`}},
		{"newline", "\n", [7]string{m, " ", same, same, same, "?", same}},
		{"return", "\r", [7]string{m, " ", m, "\n", "␍", "?", same}},
		{"tab", "\t", [7]string{m, " ", same, same, same, "?", same}},
		{"line separator", "\u2028", [7]string{m, " ", m, m, m, "?", `\u2028`}},
		{"paragraph separator", "\u2029", [7]string{m, " ", m, m, m, "?", `\u2029`}},
		{"override", "\u202e", [7]string{m, m, m, m, m, "?", `\u202e`}},
		{"isolate", "\u2066", [7]string{m, m, m, m, m, "?", `\u2066`}},
		{"mark of direction", "\u200f", [7]string{m, m, m, m, m, "?", `\u200f`}},
		{"Arabic mark", "\u061c", [7]string{m, m, m, m, m, "?", `\u061c`}},
		{"space without width", "\u200b", [7]string{m, m, same, same, same, "?", `\u200b`}},
		{"non-joiner", "\u200c", [7]string{m, m, same, same, same, "?", `\u200c`}},
		{"joiner", "\u200d", [7]string{m, m, same, same, same, "?", `\u200d`}},
		{"word joiner", "\u2060", [7]string{m, m, m, m, m, "?", `\u2060`}},
		{"invisible times", "\u2062", [7]string{m, m, m, m, m, "?", `\u2062`}},
		{"byte order mark", "\ufeff", [7]string{m, m, m, m, m, "?", `\ufeff`}},
		{"soft hyphen", "\u00ad", [7]string{m, m, same, same, same, "?", `\u00ad`}},
		{"annotation", "\ufff9", [7]string{m, m, m, m, m, "?", `\ufff9`}},
		{"tag", "\U000e0041", [7]string{m, m, m, m, m, "?", `\udb40\udc41`}},
		{"selector of emoji", "\ufe0f", [7]string{m, same, same, same, same, "?", `\ufe0f`}},
		{"selector beyond", "\U000e0100", [7]string{m, m, m, m, m, "?", `\udb40\udd00`}},
		{"Hangul filler", "\u3164", [7]string{m, m, m, m, m, "?", `\u3164`}},
		{"grapheme joiner", "\u034f", [7]string{m, m, same, same, same, "?", `\u034f`}},
		{"hard space", "\u00a0", [7]string{m, " ", same, same, same, "?", `\u00a0`}},
		{"empty braille", "\u2800", [7]string{m, m, same, same, same, "?", `\u2800`}},
		{"private", "\ue000", [7]string{m, m, same, same, same, "?", `\ue000`}},
		{"Arabic number sign", "\u0600", [7]string{m, m, same, same, same, "?", `\u0600`}},
		{"not UTF-8", "\xff", [7]string{m, m, m, m, m, "?", `\ufffd`}},
		{"half a surrogate", "\xed\xa0\x80", [7]string{m + m + m, m + m + m, m + m + m, m + m + m, m, "???", `\ufffd\ufffd\ufffd`}},
		{"accents", "e\u0301\u0301\u0301", [7]string{"e\u0301\u0301" + m, "e\u0301\u0301" + m, same, same, same, "e???", same}},
	} {
		for i, p := range cleaners {
			want := row.want[i]
			if want == same {
				want = row.in
			}
			if got := p.do("a" + row.in + "b"); got != "a"+want+"b" {
				t.Errorf("%s of %s: got %+q, want %+q", p.name, row.name, got, "a"+want+"b")
			}
		}
	}
}

// Harmless text stays unchanged for every reader.
func TestHarmlessTextIsUnchanged(t *testing.T) {
	for _, s := range []string{"", "POST api.github.com/repos/acme/pay/pulls", "Zürich → 東京 é", "e\u0301", "ไม่"} {
		for _, p := range cleaners {
			if got := p.do(s); p.name != "ASCII" && got != s {
				t.Errorf("%s: the harmless text %q became %q", p.name, s, got)
			}
		}
	}
	for _, s := range []string{"⚠\ufe0f warning", "می\u200cخواهم", "👩\u200d💻", "two\n\tlines\n"} {
		for _, do := range []func(string) string{text.Lines, text.Output, text.InPlace} {
			if got := do(s); got != s {
				t.Errorf("the harmless text %q became %q", s, got)
			}
		}
	}
}

func TestLimitsOfLength(t *testing.T) {
	long := strings.Repeat("x", big)
	if got := text.Strict(long, 100); len(got) > 160 || !strings.HasSuffix(got, "… (1048576 bytes, 100 shown)") {
		t.Errorf("Strict of 1 MiB with a limit of 100: got %q", got)
	}
	for limit, want := range map[int]string{0: "…", -1: "…", 1: "…", 2: "é…", 3: "é…", 4: "éé"} {
		if got := text.Line("éé", limit); got != want {
			t.Errorf("Line with a limit of %d: got %q, want %q", limit, got, want)
		}
		if got := text.Clip("éé", limit); got != want {
			t.Errorf("Clip with a limit of %d: got %q, want %q", limit, got, want)
		}
	}
	if got := text.ASCII(long, 10); got != "xxxxxxxxxx..." {
		t.Errorf("ASCII with a limit of 10: got %q", got)
	}
	// With a limit of 0, the result is empty.
	if got := text.Strict("x", 0); strings.Contains(got, "x") {
		t.Errorf("Strict of nothing: %q", got)
	}
}

func TestPrintable(t *testing.T) {
	for s, want := range map[string]bool{"": true, "a b": true, "é": true, "a\nb": false, "a\u202eb": false, "a\u00a0b": false, "\xff": false, "\x7f": false} {
		if got := text.Printable(s); got != want {
			t.Errorf("Printable of %q: got %v, want %v", s, got, want)
		}
		if got := text.PrintableASCII(s); got != (want && s != "é") {
			t.Errorf("PrintableASCII of %q: got %v, want %v", s, got, want && s != "é")
		}
	}
}

// isHarmful reports whether every cleaner must remove a character: controls, direction overrides,
// and characters that carry an invisible message.
func isHarmful(r rune) bool {
	return r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) ||
		unicode.In(r, unicode.Zl, unicode.Zp) || r >= 0xe0000 && r <= 0xe0fff || r == 0xfeff
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "a\x1b[31m", "\x1b]0;x\x07", "\r\r\n", "\x1bP\x1b\\", "\u202e\xff", "\x1b[" + strings.Repeat("1;", 3000), "\u0301\u0301\u0301", "\U000e0041\u2028"} {
		f.Add(s, 10)
	}
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit %= 4096
		for _, p := range cleaners {
			if p.name == "EscapeJSON" {
				continue
			}
			got := p.do(s)
			if !utf8.ValidString(got) || strings.ContainsFunc(got, isHarmful) {
				t.Fatalf("%s: %q became the harmful text %q", p.name, s, got)
			}
			if again := p.do(got); again != got {
				t.Fatalf("%s: %q is shown as %q and then as %q", p.name, s, got, again)
			}
		}
		for _, got := range []string{text.Strict(s, limit), text.Line(s, limit), text.ASCII(s, limit)} {
			if strings.ContainsAny(got, "\n\t") || len(got) > max(limit, 0)+len(fmt.Sprintf("… (%d bytes, %d shown)", len(s), len(s))) {
				t.Fatalf("%q with a limit of %d became %q", s, limit, got)
			}
		}
		if got := text.Clip(text.Lines(s), limit); !utf8.ValidString(got) {
			t.Fatalf("%q was cut into %q", s, got)
		}
		// Escaped JSON decodes to the same value, and is as harmless as Strict.
		document, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		escaped := text.EscapeJSON(bytes.Clone(document))
		var before, after string
		if err := json.Unmarshal(document, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(escaped, &after); err != nil || before != after {
			t.Fatalf("%q, escaped as %s, decodes to %q, %v", s, escaped, after, err)
		}
		if strings.ContainsFunc(string(escaped), func(r rune) bool { return r < ' ' || isHarmful(r) || unicode.Is(unicode.Cf, r) }) {
			t.Fatalf("EscapeJSON: %q became the harmful text %q", s, escaped)
		}
	})
}
