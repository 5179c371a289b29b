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

// S10: text that merely begins like a key goes out at once; a key cut in two, with any time
// between, is redacted; and time never releases the held part.
func TestNoStallAndNoLeakByTime(t *testing.T) {
	key := "tk-live-5f0c9a77be"
	r, err := redact.New([]redact.Value{{Name: "K", Data: []byte(key)}}, redact.Options{Patterns: true})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	w := r.Writer(&out)
	say := func(text, want string) {
		t.Helper()
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("after %q: %q, want %q", text, out.String(), want)
		}
		out.Reset()
	}
	say("data: t", "data: t")         // its first letter
	say("k-li", "k-li")               // five letters in all
	say("\n\n", "\n\n")               // and it was not a key
	say("data: tk-li", "data: tk-li") // five at once
	say("ke\n\n", "ke\n\n")
	say("data: tk-liv", "data: ") // six: held
	say("", "")                   // an empty write frees nothing
	say("e-5f0c9a77b", "")        // still
	say("e", "[redacted:K]")      // the last letter: the replacement waits for nothing more
	say("!", "!")
	say("tk-live-5f0", "")   // held again
	say("?", "tk-live-5f0?") // and released, by a byte and not by time
	say("tk-live-5f0c9a", "")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if out.String() != "[redacted:K]" {
		t.Errorf("the end gave %q", out.String())
	}
}

// A party that only knows a token's form makes us hold no more than a limit.
func TestHeldBytesAreBounded(t *testing.T) {
	r, err := redact.New([]redact.Value{{Name: "K", Data: []byte("0123456789abcdef")}}, redact.Options{Patterns: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, lure := range []struct{ first, on string }{
		{"eyJ", "a"}, {"-----BEGIN ", "A"}, {"303132333435", "\n"}, {"303132333435", " \t\r\n"}, {"sk-", "-"}, {"sk-", "sk-"},
	} {
		s := r.Stream()
		in, out := 0, 0
		for piece := lure.first; in < 1<<20; piece = strings.Repeat(lure.on, 100) {
			in += len(piece)
			out += len(s.Append(nil, []byte(piece)))
			if in-out > 8<<10 {
				t.Fatalf("%q and on with %q: %d bytes held", lure.first, lure.on, in-out)
			}
		}
	}
}

func TestReader(t *testing.T) {
	r := known(t, redact.Options{})
	whole := strings.Repeat("x", 40000) + apiKey + strings.Repeat("y", 40000) + dbPass + apiKey
	want := strings.NewReplacer(apiKey, "[redacted:API]", dbPass, "[redacted:DB]").Replace(whole)
	for name, source := range map[string]io.Reader{
		"plain": strings.NewReader(whole), "in halves": iotest.HalfReader(strings.NewReader(whole)),
		"with EOF": iotest.DataErrReader(strings.NewReader(whole)),
	} {
		got, err := io.ReadAll(iotest.HalfReader(r.Reader(source)))
		if err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	broken := errors.New("broken")
	got, err := io.ReadAll(r.Reader(io.MultiReader(strings.NewReader("a "+apiKey[:20]), iotest.ErrReader(broken))))
	if !errors.Is(err, broken) || string(got) != "a [redacted:API]" {
		t.Errorf("a source that breaks off: %q, %v", got, err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestWriterKeepsItsError(t *testing.T) {
	w := known(t, redact.Options{}).Writer(brokenWriter{})
	for range 2 {
		if _, err := w.Write([]byte("text")); !errors.Is(err, io.ErrShortWrite) {
			t.Error(err)
		}
	}
	if err := w.Close(); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
}

func TestSameLength(t *testing.T) {
	r := known(t, redact.Options{SameLength: true})
	in := "a" + apiKey + "b" + dbPass
	want := "a" + strings.Repeat("*", len(apiKey)) + "b" + strings.Repeat("*", len(dbPass))
	if got := r.String(in); got != want {
		t.Errorf("%q", got)
	}
}

func TestBytesLeavesItsArgumentAlone(t *testing.T) {
	r := known(t, redact.Options{})
	in := []byte("x " + apiKey + " y")
	before := bytes.Clone(in)
	if r.Bytes(in); !bytes.Equal(in, before) {
		t.Error("changed")
	}
	clean := []byte("nothing here")
	if got := r.Bytes(clean); &got[0] != &clean[0] {
		t.Error("a clean text was copied")
	}
}

func TestMaskNamesAreHarmless(t *testing.T) {
	r, err := redact.New([]redact.Value{{Name: "A\x1b]0;x\a] B", Data: []byte("0123456789")}}, redact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.String("0123456789"); got != "[redacted:A__0;x___B]" {
		t.Errorf("%q", got)
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
