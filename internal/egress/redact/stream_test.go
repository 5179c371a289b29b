package redact_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/crannog/crannog/internal/egress/redact"
)

// Threat S10 (docs/reference/threat-model.md): text that only begins like a key is output at once.
// A key in two pieces is redacted, and its held beginning is never output because of time that
// passes.
func TestStreamHoldsOnlyPossibleKeys(t *testing.T) {
	key := "tk-live-5f0c9a77be"
	r, err := redact.New([]redact.Value{{Name: "K", Data: []byte(key)}}, redact.Options{Patterns: true})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	w := r.Writer(&out)
	writeAndCheck := func(text, want string) {
		t.Helper()
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("after %q: %q, want %q", text, out.String(), want)
		}
		out.Reset()
	}
	writeAndCheck("data: t", "data: t")         // the key's first letter
	writeAndCheck("k-li", "k-li")               // five of its letters are not held
	writeAndCheck("\n\n", "\n\n")               // it was no key
	writeAndCheck("data: tk-li", "data: tk-li") // five letters in one piece
	writeAndCheck("ke\n\n", "ke\n\n")
	writeAndCheck("data: tk-liv", "data: ") // six letters are held
	writeAndCheck("", "")                   // an empty write releases nothing
	writeAndCheck("e-5f0c9a77b", "")        // all but the last letter
	writeAndCheck("e", "[redacted:K]")      // the last letter: the replacement is written at once
	writeAndCheck("!", "!")
	writeAndCheck("tk-live-5f0", "")   // held again
	writeAndCheck("?", "tk-live-5f0?") // released, because it is not the key
	writeAndCheck("tk-live-5f0c9a", "")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if out.String() != "[redacted:K]" {
		t.Errorf("Close wrote %q, want [redacted:K]", out.String())
	}
}

// An attacker who knows only a token's format can make a stream hold no more than a limit.
func TestHeldBytesAreLimited(t *testing.T) {
	r, err := redact.New([]redact.Value{{Name: "K", Data: []byte("0123456789abcdef")}}, redact.Options{Patterns: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, lure := range []struct{ first, next string }{
		{"eyJ", "a"}, {"-----BEGIN ", "A"}, {"303132333435", "\n"}, {"303132333435", " \t\r\n"}, {"sk-", "-"}, {"sk-", "sk-"},
	} {
		s := r.Stream()
		in, out := 0, 0
		for piece := lure.first; in < 1<<20; piece = strings.Repeat(lure.next, 100) {
			in += len(piece)
			out += len(s.Append(nil, []byte(piece)))
			if in-out > 8<<10 {
				t.Fatalf("%q followed by many %q: %d bytes are held, want at most %d", lure.first, lure.next, in-out, 8<<10)
			}
		}
	}
}

func TestReaderRedacts(t *testing.T) {
	r := newRedactor(t, redact.Options{})
	whole := strings.Repeat("x", 40000) + apiKey + strings.Repeat("y", 40000) + dbPass + apiKey
	want := strings.NewReplacer(apiKey, "[redacted:API]", dbPass, "[redacted:DB]").Replace(whole)
	for name, source := range map[string]io.Reader{
		"plain": strings.NewReader(whole), "in halves": iotest.HalfReader(strings.NewReader(whole)),
		"with EOF": iotest.DataErrReader(strings.NewReader(whole)),
	} {
		got, err := io.ReadAll(iotest.HalfReader(r.Reader(source)))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %d bytes (%v), want the %d bytes of the redacted text", name, len(got), err, len(want))
		}
	}
	broken := errors.New("broken")
	got, err := io.ReadAll(r.Reader(io.MultiReader(strings.NewReader("a "+apiKey[:20]), iotest.ErrReader(broken))))
	if !errors.Is(err, broken) || string(got) != "a [redacted:API]" {
		t.Errorf("source with an error: got %q, %v; want the partial value redacted and the source's error", got, err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestWriterReturnsErrorAgain(t *testing.T) {
	w := newRedactor(t, redact.Options{}).Writer(brokenWriter{})
	for range 2 {
		if _, err := w.Write([]byte("text")); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("Write: got %v, want %v", err, io.ErrShortWrite)
		}
	}
	if err := w.Close(); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("Close: got %v, want %v", err, io.ErrShortWrite)
	}
}

func TestSameLengthReplacesWithStars(t *testing.T) {
	r := newRedactor(t, redact.Options{SameLength: true})
	in := "a" + apiKey + "b" + dbPass
	want := "a" + strings.Repeat("*", len(apiKey)) + "b" + strings.Repeat("*", len(dbPass))
	if got := r.String(in); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBytesDoesNotChangeArgument(t *testing.T) {
	r := newRedactor(t, redact.Options{})
	in := []byte("x " + apiKey + " y")
	before := bytes.Clone(in)
	if r.Bytes(in); !bytes.Equal(in, before) {
		t.Error("Bytes changed its argument")
	}
	clean := []byte("nothing here")
	if got := r.Bytes(clean); &got[0] != &clean[0] {
		t.Error("Bytes copied a text without values")
	}
}

func TestPlaceholderNamesHaveNoControlCharacters(t *testing.T) {
	r, err := redact.New([]redact.Value{{Name: "A\x1b]0;x\a] B", Data: []byte("0123456789")}}, redact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.String("0123456789"); got != "[redacted:A__0;x___B]" {
		t.Errorf("got %q, want [redacted:A__0;x___B]", got)
	}
}

// text resembles downloads: words, numbers, markup, base64.
func text(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "{\"id\": %d, \"sha\": \"%x\", \"name\": \"task-%d of the morning\", \"blob\": \"R0lGODlhAQABAIAAAP%dyH5BAEKAAEALAAAAAABAAEAAAICTAEAOw\"},\n", i*7919, i*1000003, i, i)
	}
	return b.Bytes()[:n]
}

func BenchmarkStream(b *testing.B) {
	data := text(1 << 20)
	for _, c := range []struct {
		values   int
		patterns bool
	}{{1, false}, {5, false}, {5, true}, {50, true}} {
		b.Run(fmt.Sprintf("%d values, patterns %v", c.values, c.patterns), func(b *testing.B) {
			r, err := redact.New(manyValues(c.values), redact.Options{Patterns: c.patterns})
			if err != nil {
				b.Fatal(err)
			}
			w := r.Writer(io.Discard)
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				for chunk := data; len(chunk) > 0; {
					n := min(len(chunk), 32<<10)
					w.Write(chunk[:n])
					chunk = chunk[n:]
				}
			}
		})
	}
}

func BenchmarkBuild(b *testing.B) {
	values := manyValues(5)
	b.ReportAllocs()
	for b.Loop() {
		r, err := redact.New(values, redact.Options{Patterns: true})
		if err != nil {
			b.Fatal(err)
		}
		r.String("x")
	}
}

func manyValues(n int) []redact.Value {
	var out []redact.Value
	for i := range n {
		out = append(out, redact.Value{Name: "V", Data: fmt.Appendf(nil, "%c%dAbCdEfGhIjKlMnOpQrStUv+/wX%dyZ", 'a'+i%26, i*i, i*31)})
	}
	return out
}
