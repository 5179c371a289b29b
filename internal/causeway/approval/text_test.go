package approval_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/crannog/crannog/internal/causeway/approval"
)

// A4: nothing that a sandbox chose moves a cursor, turns writing around,
// starts a line, hides, or fills the screen.
func TestTextIsInert(t *testing.T) {
	for name, hostile := range map[string]string{
		"escape":         "a\x1b[2J\x1b]0;title\x07b",
		"C1":             "a\u009b2Jb",
		"newline":        "a\r\nApprove? y\n",
		"tab":            "a\tb",
		"delete":         "a\x7f\x08b",
		"bidi":           "a\u202egpj.exe\u2066b\u2069\u200f",
		"zero width":     "pay\u200bload\u200d\u2060\ufeff",
		"soft hyphen":    "pay\u00adload",
		"line separator": "a\u2028b\u2029c",
		"fillers":        "a\u3164\u115f\u1160\uffa0\u2800b",
		"tags":           "a\U000e0041\U000e0042b",
		"variation":      "a\ufe0f\U000e0100b",
		"odd spaces":     "a\u00a0\u3000\u2003b",
		"accents":        "a" + strings.Repeat("\u0301", 40) + "b",
		"private":        "a\ue000\U0010fffdb",
		"not UTF-8":      "a\xff\xfe\x9bb",
	} {
		got := approval.Text(hostile, 1000)
		bad := func(r rune) bool {
			return r != ' ' && !unicode.IsGraphic(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r > 0x2000 && unicode.IsSpace(r)
		}
		if strings.ContainsFunc(got, bad) || !utf8.ValidString(got) || !strings.ContainsRune(got, '\ufffd') {
			t.Errorf("%s: %q", name, got)
		}
		if strings.Count(got, "\u0301") > 2 {
			t.Errorf("%s: %q", name, got)
		}
	}
	// What is honest stays as it is.
	for _, plain := range []string{"", "POST api.github.com/repos/acme/pay/pulls", "Zürich → 東京 é", "e\u0301"} {
		if got := approval.Text(plain, 1000); got != plain {
			t.Errorf("%q became %q", plain, got)
		}
	}
	long := approval.Text(strings.Repeat("x", 1<<20), 100)
	if len(long) > 160 || !strings.HasSuffix(long, "… (1048576 bytes, 100 shown)") {
		t.Errorf("%q", long)
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\x1b[2J\u202e", 10)
	f.Add("", 0)
	f.Add("\xff\u0301\u0301\u0301", 3)
	f.Fuzz(func(t *testing.T, s string, max int) {
		got := approval.Text(s, max%4096)
		for _, r := range got {
			if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r != ' ' && unicode.IsSpace(r) {
				t.Fatalf("%q became %q", s, got)
			}
		}
		if again := approval.Text(got, 1<<30); again != got {
			t.Fatalf("%q is shown as %q and then as %q", s, got, again)
		}
	})
}
