package audit

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// hostileTexts are texts that a hostile program may put into its arguments.
var hostileTexts = []string{
	"two\nlines", "a\rb", "\x1b]0;title\x07\x1b[2J", "\u202Etxt.exe\u2066", "\u2028\u2029", "\x00\x7f\u0085\u009b31m", "\xff\xfe broken",
	`{"seq":99,"kind":"action"}` + "\n" + `{"seq":100}`, "</script><!--", "\ufeff\u200b", "😀\U000e0041", "a\ufe0f\U000e0100",
}

// P30: a text cannot start a new line or control the terminal of a person who prints the file. It
// is read back unchanged.
func TestHostileTextCannotBreakLine(t *testing.T) {
	l := openLog(t, Options{})
	for _, s := range hostileTexts {
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		err = l.Append(t.Context(), Draft{Kind: Exec, Sandbox: s, Actor: s, Data: map[string]string{s: s}, Source: s, At: 1},
			Draft{Kind: Exec, Data: json.RawMessage(`{"raw":` + string(raw) + `}`)},
			Draft{Kind: Exec, Data: json.RawMessage("{\"raw\":\n\n\"\xff\u2028\"}")})
		if err != nil {
			t.Fatalf("Append of the text %q: %v", s, err)
		}
	}
	data, err := os.ReadFile(filepath.Join(l.dir, segmentName(0)))
	if err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(data, []byte("\n")); got != 3*len(hostileTexts) {
		t.Errorf("%d lines, want %d", got, 3*len(hostileTexts))
	}
	if !utf8.Valid(data) {
		t.Error("the segment is not UTF-8")
	}
	for _, r := range string(data) {
		if r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Variation_Selector)) {
			t.Fatalf("the segment contains the control character %U", r)
		}
	}
	got := readAll(t, l, Filter{})
	for i, s := range hostileTexts {
		want := strings.ToValidUTF8(s, "\ufffd")
		var m map[string]string
		if err := json.Unmarshal(got[3*i].Data, &m); err != nil {
			t.Fatal(err)
		}
		if s := got[3*i]; utf8.ValidString(hostileTexts[i]) && (s.Sandbox != want || m[want] != want || s.Source != want) {
			t.Errorf("the text %q became %+v", want, s)
		}
	}
	if v, err := l.Verify(t.Context()); err != nil || !v.OK {
		t.Errorf("Verify: got %+v, %v, want OK", v, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"seq":0,"time":"2026-01-02T03:04:05Z","prev":"","kind":"exec","data":{"a":[1,"x"]}}`))
	f.Add([]byte(`{"seq":1,"time":"2026-01-02T03:04:05Z","prev":"ab","kind":"flow","source":"net/x","at":18446744073709551615}`))
	f.Add([]byte(`{"seq":0}{"seq":1}`))
	f.Add([]byte(`{"seq":-1,"kind":"x"}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := decode(line)
		if err != nil {
			return
		}
		// An entry that was read can be written, and then equals itself.
		p, err := encode(Draft{Time: e.Time, Kind: e.Kind, Sandbox: e.Sandbox, Actor: e.Actor, Data: e.Data, Source: e.Source, At: e.At}, e.Time)
		if err != nil {
			return // longer than any line that Append writes, or a position without a source
		}
		again := p.line(nil, e.Seq, "")
		if bytes.ContainsAny(again, "\n\r") {
			t.Fatalf("%q has two lines", again)
		}
		back, err := decode(again)
		if err != nil {
			t.Fatalf("decoding %q again: %v", again, err)
		}
		if back.Seq != e.Seq || back.Kind != Kind(strings.ToValidUTF8(string(e.Kind), "\ufffd")) || !back.Time.Equal(e.Time) || back.At != e.At {
			t.Fatalf("the entry %+v became %+v", e, back)
		}
	})
}

func FuzzNotes(f *testing.F) {
	_, n := sample(f, 3)
	f.Add([]byte(n))
	f.Add([]byte(n + "\n" + n))
	f.Add([]byte(`{"checkpoint":{"note":"x"}}` + "\n" + `{"note":"y"}`))
	f.Add([]byte("— x\n— y\n\n\n"))
	l := openLog(f, Options{})
	f.Fuzz(func(t *testing.T, data []byte) {
		notes, err := Notes(data)
		if err != nil {
			return
		}
		for _, n := range notes {
			// Only the holder of the key can sign.
			if c, _, err := openCheckpoint(n, l.verifier); err == nil {
				t.Fatalf("%q is a tree head: %+v", n, c)
			}
		}
	})
}

func FuzzVerifyFile(f *testing.F) {
	l := openLog(f, Options{})
	fill(f, l, 0, 9)
	var whole, part bytes.Buffer
	if err := l.Export(f.Context(), &whole, Filter{}); err != nil {
		f.Fatal(err)
	}
	if err := l.Export(f.Context(), &part, Filter{Sandbox: "box1"}); err != nil {
		f.Fatal(err)
	}
	f.Add(whole.Bytes())
	f.Add(part.Bytes())
	f.Add([]byte(`{"left_out":{"from":0,"to":9223372036854775807,"hashes":[]}}`))
	genuine := map[string]bool{}
	for _, e := range []string{whole.String(), part.String()} {
		for line := range strings.Lines(e) {
			genuine[line] = true
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := VerifyFile(bytes.NewReader(data), l.Key())
		if err != nil || !v.OK {
			return
		}
		// A log that verifies contains only entries that were appended.
		for line := range strings.Lines(string(data)) {
			if _, err := decode([]byte(strings.TrimSuffix(line, "\n"))); err == nil && !genuine[line] {
				t.Fatalf("a log with the changed line %q verifies", line)
			}
		}
	})
}
